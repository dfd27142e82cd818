#include "ops/update/device_piece.h"

namespace tessera {
namespace {

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
  const int64_t number = static_cast<int64_t>(blockIdx.x) - piece.row.first_block;
  if (threadIdx.x == 0) sums[piece.row.first_sum + number] = total;
}

}  // namespace

template <typename Vendor>
void sum_of_squares_device(const DeviceTable<SquaresRow>& sections, double* sums, Stream& stream) {
  launch(sum_squares_of_pieces, grid_of_pieces(sections), stream, sections, sums);
}

template void sum_of_squares_device<ThisVendor>(const DeviceTable<SquaresRow>&, double*, Stream&);

}  // namespace tessera
