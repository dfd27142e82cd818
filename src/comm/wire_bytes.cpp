#include "comm/wire_bytes.h"

namespace tessera {
namespace {

int64_t slice_length(int64_t elements, int ranks, int position) {
  return slice_begin(elements, ranks, position + 1) - slice_begin(elements, ranks, position);
}

}  // namespace

int64_t all_gather_bytes(const PieceLayout& layout, int position, int64_t element_bytes) {
  const int next = (position + 1) % layout.ranks();
  return (layout.elements() - layout.elements(next)) * element_bytes;
}

int64_t reduce_scatter_bytes(const PieceLayout& layout, int position, int64_t element_bytes) {
  return (layout.elements() - layout.elements(position)) * element_bytes;
}

int64_t all_reduce_bytes(int64_t elements, int ranks, int position, int64_t element_bytes) {
  const int next = (position + 1) % ranks;
  return (2 * elements - slice_length(elements, ranks, position) -
          slice_length(elements, ranks, next)) *
         element_bytes;
}

}  // namespace tessera
