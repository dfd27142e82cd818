#include "ops/update/device_piece.h"

namespace tessera {
namespace {

__global__ void zero_pieces(DeviceTable<ZeroRow> values) {
  const Piece<ZeroRow> piece = piece_of_block(values);
  std::byte* const start = piece.row.start + piece.begin;
  constexpr int kWords = kPackSize<uint32_t>, kBytes = kWords * sizeof(uint32_t);
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = piece.count / kBytes;
  for (int pack = thread; pack < packs; pack += kPieceThreads) {
    store_pack(reinterpret_cast<uint32_t*>(start), pack, Pack<uint32_t, kWords>{});
  }
  if (thread < piece.count % kBytes) start[packs * kBytes + thread] = std::byte{0};
}

}  // namespace

template <typename Vendor>
void zero_device(const DeviceTable<ZeroRow>& values, Stream& stream) {
  launch(zero_pieces, grid_of_pieces(values), stream, values);
}

template void zero_device<ThisVendor>(const DeviceTable<ZeroRow>&, Stream&);

}  // namespace tessera
