#pragma once

#include <memory>

#include "data/bpe/bpe_stages.h"
#include "data/document_encoder.h"

namespace tessera {

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
