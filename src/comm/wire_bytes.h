#pragma once

#include <cstdint>

#include "comm/piece_layout.h"

namespace tessera {

// The bytes that the rank at `position` of a group puts on the wire. Collectives are counted as
// ring algorithms send them: each rank sends only to the next rank. Transports count the bytes that
// ranks really receive (Transport::received_bytes()). Over a whole group, both sums are equal.

/// Returns the bytes of an all-gather. In a ring, a rank sends all pieces but the next rank's: of n
/// equal pieces, (n-1)/n of the whole.
int64_t all_gather_bytes(const PieceLayout& layout, int position, int64_t element_bytes);

/// Returns the bytes of a reduce-scatter. In a ring, a rank sends sums of all pieces but its own.
int64_t reduce_scatter_bytes(const PieceLayout& layout, int position, int64_t element_bytes);

/// Returns the bytes of an all-reduce: a reduce-scatter and an all-gather of n slices of nearly
/// equal size, so 2(n-1)/n of the whole.
int64_t all_reduce_bytes(int64_t elements, int ranks, int position, int64_t element_bytes);

/// Returns the index of the first element of a rank's slice of an array. For position `ranks` it
/// returns the end of the array.
inline int64_t slice_begin(int64_t elements, int ranks, int position) {
  return elements / ranks * position + elements % ranks * position / ranks;
}

}  // namespace tessera
