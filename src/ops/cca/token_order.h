#pragma once

#include <cstdint>

namespace tessera {

/// The order of an operation's tokens. They are either whole sequences, one after another, or the
/// next tokens of a single sequence that is being continued. A sequence may have several documents.
/// Counts have 32 bits, because devices divide these faster.
struct TokenOrder {
  int32_t sequence = 1;  ///< tokens of one sequence
  /// [tokens]: for each token, the position of the first token of its document within its
  /// sequence. Null: a sequence is one document.
  const int32_t* document_starts = nullptr;
  /// [1]: the position of token 0 in the sequence that is continued. Null: whole sequences.
  const int32_t* position = nullptr;

  /// Returns whether the token before `token` belongs to the same document.
  constexpr bool continues_document(int64_t token) const {
    if (position != nullptr) return *position + static_cast<int32_t>(token) > 0;
    const int32_t index = static_cast<int32_t>(token) % sequence;
    return index > 0 && (document_starts == nullptr || index > document_starts[token]);
  }
};

}  // namespace tessera
