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

void copy_from_whole(const PieceLayout& layout, int position, const OuterBlocks& blocks,
                     int64_t size, const std::byte* whole, std::byte* piece, Stream& stream) {
  if (layout.elements() == 0) return;
  const int64_t whole_stride = layout.block_elements() * size;
  const int64_t piece_stride = layout.elements(position) / layout.outer() * size;
  for (const ElementRun& run : layout.runs(position)) {
    const int64_t row_bytes = run.length * layout.inner() * size;
    strided_copy({.from = whole + blocks.begin * whole_stride + run.place * layout.inner() * size,
                  .from_stride = whole_stride,
                  .to = piece,
                  .to_stride = piece_stride,
                  .rows = blocks.end - blocks.begin,
                  .row_bytes = row_bytes},
                 stream);
    piece += row_bytes;
  }
}

void copy_to_whole(const PieceLayout& layout, int position, const OuterBlocks& blocks, int64_t size,
                   const std::byte* piece, std::byte* whole, Stream& stream) {
  if (layout.elements() == 0) return;
  const int64_t whole_stride = layout.block_elements() * size;
  const int64_t piece_stride = layout.elements(position) / layout.outer() * size;
  for (const ElementRun& run : layout.runs(position)) {
    const int64_t row_bytes = run.length * layout.inner() * size;
    strided_copy({.from = piece,
                  .from_stride = piece_stride,
                  .to = whole + blocks.begin * whole_stride + run.place * layout.inner() * size,
                  .to_stride = whole_stride,
                  .rows = blocks.end - blocks.begin,
                  .row_bytes = row_bytes},
                 stream);
    piece += row_bytes;
  }
}

}  // namespace tessera
