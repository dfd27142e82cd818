#include "ops/update/device_piece.h"

namespace tessera {
namespace {

__global__ void round_pieces(DeviceTable<RoundRow> units) {
  const Piece<RoundRow> piece = piece_of_block(units);
  const float* const master = piece.row.master + piece.begin;
  BFloat16* const weight = piece.row.weight + piece.begin;
  for_elements_of_piece(master, piece.count, [&](int first, auto size) {
    const auto from = load_pack<size>(master + first, 0);
    Pack<BFloat16, size> to;
    for (int i = 0; i < size; ++i) to.values[i] = round_to<BFloat16>(from.values[i]);
    store_pack(weight + first, 0, to);
  });
}

}  // namespace

template <typename Vendor>
void round_device(const DeviceTable<RoundRow>& units, Stream& stream) {
  launch(round_pieces, grid_of_pieces(units), stream, units);
}

template void round_device<ThisVendor>(const DeviceTable<RoundRow>&, Stream&);

}  // namespace tessera
