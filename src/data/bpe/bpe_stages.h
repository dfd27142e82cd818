#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe/added_token_finder.h"
#include "data/bpe/bpe_description.h"
#include "data/bpe/bpe_model.h"
#include "data/bpe/bpe_normalizer.h"
#include "data/bpe/split_pattern.h"

namespace tessera {

/// The stages that turn text into tokens, in the order in which they run.
struct BpeStages {
  /// Throws Error naming `origin` as BpeModel and SplitPattern do.
  BpeStages(const BpeDescription& description, int32_t end_of_document, const std::string& origin);

  std::unique_ptr<AddedTokenFinder> raw_finder;         ///< finds tokens before normalisation
  std::unique_ptr<BpeNormalizer> normalizer;            ///< null if text is not normalised
  std::unique_ptr<AddedTokenFinder> normalized_finder;  ///< finds tokens after normalisation
  bool adds_prefix_space;
  std::vector<SplitStep> steps;
  std::vector<SplitPattern> patterns;  ///< one per step
  BpeModel model;
};

}  // namespace tessera
