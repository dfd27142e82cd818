#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe/added_token_finder.h"
#include "data/bpe/bpe_description.h"
#include "data/bpe/bpe_model.h"
#include "data/bpe/nfc.h"
#include "data/bpe/split_pattern.h"

namespace tessera {

/// What makes tokens of text, in the order in which it does.
struct BpeStages {
  /// Throws Error naming `origin` as BpeModel and SplitPattern do.
  BpeStages(const BpeDescription& description, int32_t end_of_document, const std::string& origin);

  std::unique_ptr<AddedTokenFinder> found_raw;  ///< of tokens that are found before normalisation
  std::unique_ptr<NfcNormalizer> nfc;           ///< null where text stays as it is
  std::unique_ptr<AddedTokenFinder> found_normalized;  ///< of those that are found after it
  bool adds_prefix_space;
  std::vector<SplitStep> steps;
  std::vector<SplitPattern> patterns;  ///< of the steps
  BpeModel model;
};

}  // namespace tessera
