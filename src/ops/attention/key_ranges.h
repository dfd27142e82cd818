#pragma once

#include <cstdint>

#include "ops/attention/attention_shape.h"
#include "ops/attention/scratch.h"

namespace tessera {

/// The keys that each query attends to: rows [begin, end) of its sequence's keys. Neither bound
/// falls from one query of a sequence to the next. A query may attend to no key.
struct KeyRanges {
  const int32_t* begin = nullptr;  ///< [query tokens]
  const int32_t* end = nullptr;    ///< [query tokens]

  /// Returns the ranges from the query `token` on.
  KeyRanges from(int64_t token) const { return {begin + token, end + token}; }
};

/// The positions that determine the ranges. Each array is null if it is not given.
struct TokenPositions {
  const int32_t* document_starts = nullptr;  ///< [query tokens]: of the document's first token
  const int32_t* queries = nullptr;          ///< [query tokens]; if null, row indices are positions
  const int32_t* keys = nullptr;             ///< [key tokens]; if null, row indices are positions
};

/// The arrays of the ranges, in scratch memory.
struct KeyRangeMemory {
  KeyRangeMemory(Scratch& scratch, const AttentionShape& shape)
      : begin(scratch.array<int32_t>(shape.tokens())),
        end(scratch.array<int32_t>(shape.tokens())) {}

  int32_t* begin;
  int32_t* end;
};

/// Returns the bytes of the memory for fill_key_ranges().
inline int64_t key_range_bytes(const AttentionShape& shape) {
  return layout_bytes<KeyRangeMemory>(shape);
}

/// Returns the range of each query: the keys from the start of its document up to the query itself.
/// The ranges are stored in `memory`. Throws InternalError, which names the operation, if positions
/// are negative or do not ascend within a sequence, or if a document starts after one of its tokens
/// or before the document of the previous token.
KeyRanges fill_key_ranges(const Operation& operation, const AttentionShape& shape,
                          const TokenPositions& positions, std::byte* memory);

}  // namespace tessera
