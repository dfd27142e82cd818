#include "ops/update/device_piece.h"

namespace tessera {
namespace {

/// Writes the sum of the squares of one piece per block: of at most kSquaresElements elements.
__global__ void sum_squares_of_pieces(DeviceTable<SquaresRow> sections, double* sums) {
  const Piece<SquaresRow> piece = piece_of_block(sections);
  const float* const values = piece.row.values + piece.begin;
  double total = 0;
  for_elements_of_piece(values, piece.count, [&](int first, auto size) {
    const auto pack = load_pack<size>(values + first, 0);
    for (int i = 0; i < size; ++i) {
      const double value = pack.values[i];
      total += value * value;
    }
  });
  total = block_sum(total);
  const int64_t block_in_row = static_cast<int64_t>(blockIdx.x) - piece.row.first_block;
  if (threadIdx.x == 0) sums[piece.row.first_sum + block_in_row] = total;
}

constexpr int kAddingThreads = kMostThreads / 2;

/// Adds up SumsRow::kPerFirstStageBlock sums per block. The sums of all rows are numbered together,
/// so that all threads have work even if rows are short. Thread i of a block adds the block's sums
/// i, i + kAddingThreads and so on.
__global__ void add_block_sums(DeviceTable<SumsRow> sections, double* sums) {
  const int64_t begin = blockIdx.x * SumsRow::kPerFirstStageBlock;
  const int64_t end = begin + SumsRow::kPerFirstStageBlock;
  double total = 0;
  for (int64_t row = 0; row < sections.count; ++row) {
    const SumsRow section = sections.rows[row];
    const int64_t row_begin = section.first_block > begin ? section.first_block : begin;
    const int64_t section_end = section.first_block + section.count;
    const int64_t row_end = section_end < end ? section_end : end;
    // The first of the thread's indices that is not below row_begin.
    const int64_t round = (row_begin + kAddingThreads - 1 - threadIdx.x) / kAddingThreads;
    for (int64_t index = round * kAddingThreads + threadIdx.x; index < row_end;
         index += kAddingThreads) {
      total += section.values[index - section.first_block];
    }
  }
  total = block_sum(total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

/// Adds up the sums of all blocks, in one block.
__global__ void add_partial_sums(int64_t count, const double* partial, double* sum) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kAddingThreads) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *sum = total;
}

}  // namespace

template <typename Vendor>
void sum_of_squares_device(const DeviceTable<SquaresRow>& sections, double* sums, Stream& stream) {
  launch(sum_squares_of_pieces, grid_of_pieces(sections), stream, sections, sums);
}

template <typename Vendor>
void add_in_order_device(const DeviceTable<SumsRow>& sections, double* partial, double* sum,
                         Stream& stream) {
  const int64_t blocks = SumsRow::first_stage_blocks(sections.blocks);
  if (blocks <= 1) {
    launch(add_block_sums, {.threads = kAddingThreads}, stream, sections, sum);
    return;
  }
  launch(add_block_sums, {.blocks = blocks, .threads = kAddingThreads}, stream, sections,
         partial);
  launch(add_partial_sums, {.threads = kAddingThreads}, stream, blocks, partial, sum);
}

template void sum_of_squares_device<ThisVendor>(const DeviceTable<SquaresRow>&, double*, Stream&);
template void add_in_order_device<ThisVendor>(const DeviceTable<SumsRow>&, double*, double*,
                                              Stream&);

}  // namespace tessera
