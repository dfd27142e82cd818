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
#include "data/document_encoder.h"

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

/// Returns an encoder that takes a document, as it arrives, through the stages (BpeStages):
///
///   raw text -> search for added tokens -> parts between them -> normal form -> search for added
///   tokens -> plain text -> splits and merges (SplitChain) -> ids
///
/// Each stage keeps the text whose result later text may change:
///   - a search: the beginning of a token, and white space that a token may include,
///   - normalisation: the text after the last safe cut (see BpeNormalizer::last_cut()),
///   - the splits and the merges: see SplitChain and OpenPiece.
/// An offset is a boundary if all stages could restart there: a piece ends there, no match of an
/// earlier split and no added token that stays text contains the offset, and no text that got a
/// prefix space begins there. This depends only on the text around the offset. Every boundary is
/// reported. If a pattern looks back, only the end of the document is a boundary.
/// `stages` must outlive the encoder.
std::unique_ptr<DocumentEncoder> make_bpe_document_encoder(const BpeStages& stages);

}  // namespace tessera
