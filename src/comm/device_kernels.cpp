#include "comm/device_kernels.h"

#include "base/error.h"
#include "base/words.h"
#include "comm/reduce.h"
#include "device/vendor.h"

namespace tessera {

void ordered_sum(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream) {
  TESSERA_CHECK(can_reduce(reduction, dtype), "the {} of {}", word(reduction), dtype_name(dtype));
  if (sum.elements == 0) return;
  for_vendor(stream, [&](auto vendor) {
    ordered_sum_device<decltype(vendor)>(sum, reduction, dtype, stream);
  });
}

void strided_copy(const StridedCopy& copy, Stream& stream) {
  if (copy.rows == 0 || copy.row_bytes == 0) return;
  for_vendor(stream, [&](auto vendor) { strided_copy_device<decltype(vendor)>(copy, stream); });
}

/// Copies one run after the other. A run occurs once in each outer block, as a row.
void copy_piece(PieceCopy direction, const PieceLayout& layout, int position,
                const OuterBlocks& blocks, int64_t element_bytes, const std::byte* from,
                std::byte* to, Stream& stream) {
  if (layout.elements() == 0) return;
  const bool to_whole = direction == PieceCopy::to_whole;
  const int64_t whole_stride = layout.block_elements() * element_bytes;
  const int64_t piece_stride = layout.elements(position) / layout.outer() * element_bytes;
  int64_t piece_offset = 0;
  for (const ElementRun& run : layout.runs(position)) {
    const int64_t row_bytes = run.length * layout.inner() * element_bytes;
    const int64_t whole_offset =
        blocks.begin * whole_stride + run.begin * layout.inner() * element_bytes;
    strided_copy({.from = from + (to_whole ? piece_offset : whole_offset),
                  .from_stride = to_whole ? piece_stride : whole_stride,
                  .to = to + (to_whole ? whole_offset : piece_offset),
                  .to_stride = to_whole ? whole_stride : piece_stride,
                  .rows = blocks.end - blocks.begin,
                  .row_bytes = row_bytes},
                 stream);
    piece_offset += row_bytes;
  }
}

}  // namespace tessera
