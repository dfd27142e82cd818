#include "comm/device_kernels.h"

#include "base/error.h"
#include "base/words.h"
#include "comm/reduce.h"
#include "device/vendor.h"

namespace tessera {
namespace {

/// One run of a rank's piece, which occurs once in each outer block. All sizes are in bytes.
struct RunRows {
  int64_t whole_offset;  ///< offset of the first row in the whole
  int64_t whole_stride;  ///< from one outer block of the whole to the next
  int64_t piece_offset;  ///< offset of the first row in the blocks of the piece
  int64_t piece_stride;  ///< from one outer block of the piece to the next
  int64_t row_bytes;     ///< of the run in one block
};

/// Calls visit(rows) for each run of a rank's piece.
template <typename Visit>
void for_each_run(const PieceLayout& layout, int position, const OuterBlocks& blocks,
                  int64_t element_bytes, Visit&& visit) {
  if (layout.elements() == 0) return;
  const int64_t whole_stride = layout.block_elements() * element_bytes;
  const int64_t piece_stride = layout.elements(position) / layout.outer() * element_bytes;
  int64_t piece_offset = 0;
  for (const ElementRun& run : layout.runs(position)) {
    const int64_t row_bytes = run.length * layout.inner() * element_bytes;
    visit(RunRows{blocks.begin * whole_stride + run.begin * layout.inner() * element_bytes,
                  whole_stride, piece_offset, piece_stride, row_bytes});
    piece_offset += row_bytes;
  }
}

}  // namespace

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
                     int64_t element_bytes, const std::byte* whole, std::byte* piece,
                     Stream& stream) {
  for_each_run(layout, position, blocks, element_bytes, [&](const RunRows& run) {
    strided_copy({.from = whole + run.whole_offset,
                  .from_stride = run.whole_stride,
                  .to = piece + run.piece_offset,
                  .to_stride = run.piece_stride,
                  .rows = blocks.end - blocks.begin,
                  .row_bytes = run.row_bytes},
                 stream);
  });
}

void copy_to_whole(const PieceLayout& layout, int position, const OuterBlocks& blocks,
                   int64_t element_bytes, const std::byte* piece, std::byte* whole,
                   Stream& stream) {
  for_each_run(layout, position, blocks, element_bytes, [&](const RunRows& run) {
    strided_copy({.from = piece + run.piece_offset,
                  .from_stride = run.piece_stride,
                  .to = whole + run.whole_offset,
                  .to_stride = run.whole_stride,
                  .rows = blocks.end - blocks.begin,
                  .row_bytes = run.row_bytes},
                 stream);
  });
}

}  // namespace tessera
