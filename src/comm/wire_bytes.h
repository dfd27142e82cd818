#pragma once

#include <cstdint>

#include "comm/piece_layout.h"

namespace tessera {

// The bytes that the rank at `position` of a group puts on the wire. Collectives are counted as the
// ring algorithms send them, over whose neighbours every byte goes once. `element_bytes` is the
// size of an element. What ranks really get is counted by transports (Transport::received_bytes()):
// over all ranks of a group it is the same.

/// A ring hands on all pieces but that of the next rank: of n equal pieces, (n-1)/n of the whole.
int64_t all_gather_bytes(const PieceLayout& layout, int position, int64_t element_bytes);

/// A ring hands on the sums of all pieces but the rank's own.
int64_t reduce_scatter_bytes(const PieceLayout& layout, int position, int64_t element_bytes);

/// A reduce-scatter and an all-gather of n slices of nearly equal size: 2(n-1)/n of the whole.
int64_t all_reduce_bytes(int64_t elements, int ranks, int position, int64_t element_bytes);

/// The first element of a rank's slice of an array; that of position `ranks` is its end.
inline int64_t slice_begin(int64_t elements, int ranks, int position) {
  return elements / ranks * position + elements % ranks * position / ranks;
}

}  // namespace tessera
