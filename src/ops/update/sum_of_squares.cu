#include "ops/update/device_piece.h"

namespace tessera {
namespace {

__global__ void sum_squares_of_pieces(DeviceTable<SquaresRow> sections, double* partial) {
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
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/// One block adds the pieces' sums.
__global__ void add_sums_of_pieces(const double* partial, int64_t pieces, double* sum) {
  double total = 0;
  for (int64_t piece = threadIdx.x; piece < pieces; piece += blockDim.x) total += partial[piece];
  total = block_sum(total);
  if (threadIdx.x == 0) *sum = total;
}

}  // namespace

template <typename Vendor>
void sum_of_squares_device(const DeviceTable<SquaresRow>& sections, double* partial, double* sum,
                           Stream& stream) {
  launch(sum_squares_of_pieces, grid_of_pieces(sections), stream, sections, partial);
  launch(add_sums_of_pieces, {.threads = kMostThreads / 2}, stream, partial, sections.blocks, sum);
}

template void sum_of_squares_device<ThisVendor>(const DeviceTable<SquaresRow>&, double*, double*,
                                                Stream&);

}  // namespace tessera
