#pragma once

#include <cstdint>

#include "ops/attention/attention_shape.h"

namespace tessera {

/// The keys that each query attends: rows [begin, end) of its sequence's keys, both ascending from
/// one query of a sequence to the next. A query may attend none.
struct KeyRanges {
  const int32_t* begin = nullptr;  ///< [query tokens]
  const int32_t* end = nullptr;    ///< [query tokens]

  /// From the query `token` on.
  KeyRanges from(int64_t token) const { return {begin + token, end + token}; }
};

/// What ranges follow from, each null where it is not given.
struct TokenPlaces {
  const int32_t* document_starts = nullptr;  ///< [query tokens]: positions
  const int32_t* positions = nullptr;        ///< [query tokens]; else rows are positions
  const int32_t* key_positions = nullptr;    ///< [key tokens]; else rows are positions
};

/// Bytes of the memory that fill_key_ranges() takes.
int64_t key_range_bytes(const AttentionShape& shape);

/// Finds the keys that stand between the start of a query's document and the query itself, in
/// `memory`. Throws InternalError naming the operation where positions do not ascend within a
/// sequence or a document starts after a token of it.
KeyRanges fill_key_ranges(const Operation& operation, const AttentionShape& shape,
                          const TokenPlaces& places, std::byte* memory);

}  // namespace tessera
