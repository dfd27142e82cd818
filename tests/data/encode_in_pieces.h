#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "data/document_encoder.h"
#include "data/tokenizer.h"

namespace tessera::testing {

/// What an encoder gave.
struct EncodedPieces {
  std::vector<int32_t> ids;
  std::vector<DocumentEncoder::Boundary> boundaries;
};

/// Encodes `text` in pieces of the bytes that `next_size()` says, at least a character.
template <typename NextSize>
EncodedPieces encode_in_pieces(DocumentEncoder& encoder, bool starts_document,
                               std::string_view text, NextSize&& next_size) {
  EncodedPieces result;
  encoder.begin(starts_document);
  while (!text.empty()) {
    const size_t wanted = std::clamp<size_t>(next_size(), 1, text.size());
    const size_t size = next_character(text, wanted);
    encoder.add(text.substr(0, size), result.ids, result.boundaries);
    text.remove_prefix(size);
  }
  encoder.finish(result.ids, result.boundaries);
  return result;
}

}  // namespace tessera::testing
