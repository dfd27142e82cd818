#include "ops/update/device_piece.h"
#include "ops/update/muon_kernels.h"

namespace tessera {
namespace {

/// Computes update_momentum() of muon_passes.cpp. If the scale is NaN, only writes zeros to `out`.
template <typename T>
__global__ void muon_momentum_pieces(const double* scale_of_step, float decay,
                                     DeviceTable<MuonMomentumRow<T>> matrices) {
  const auto scale = static_cast<float>(*scale_of_step);
  const bool updates = !std::isnan(scale);
  const Piece<MuonMomentumRow<T>> piece = piece_of_block(matrices);
  const MuonMomentumRow<T>& row = piece.row;
  for_elements_of_piece(row.gradient + piece.begin, piece.count, [&](int offset, auto size) {
    const int64_t first = piece.begin + offset;
    Pack<T, size> out = {};
    if (updates) {
      const auto gradient = load_pack<size>(row.gradient + first, 0);
      auto momentum = load_pack<size>(row.momentum + first, 0);
      for (int i = 0; i < size; ++i) {
        const float g = scale * gradient.values[i];
        const float m = decay * momentum.values[i] + g;
        momentum.values[i] = m;
        out.values[i] = round_to<T>(g + decay * m);
      }
      store_pack(row.momentum + first, 0, momentum);
    }
    store_pack(row.out + first, 0, out);
  });
}

/// Computes apply_update() of muon_passes.cpp, unless the scale is NaN.
template <typename T>
__global__ void muon_update_pieces(const double* scale, const double* learning_rate,
                                   double weight_decay, DeviceTable<MuonUpdateRow<T>> matrices) {
  if (std::isnan(*scale)) return;
  const Piece<MuonUpdateRow<T>> piece = piece_of_block(matrices);
  const MuonUpdateRow<T>& row = piece.row;
  const double rate = *learning_rate;
  const auto keep = static_cast<float>(1.0 - (row.decays != 0 ? rate * weight_decay : 0.0));
  const auto step = static_cast<float>(rate * std::bit_cast<double>(row.factor));
  for_elements_of_piece(row.master + piece.begin, piece.count, [&](int offset, auto size) {
    const int64_t first = piece.begin + offset;
    const auto update = load_pack<size>(row.update + first, 0);
    auto master = load_pack<size>(row.master + first, 0);
    Pack<T, size> weight;
    for (int i = 0; i < size; ++i) {
      const float w = keep * master.values[i] - step * static_cast<float>(update.values[i]);
      master.values[i] = w;
      weight.values[i] = round_to<T>(w);
    }
    store_pack(row.master + first, 0, master);
    if (row.weight != nullptr) store_pack(row.weight + first, 0, weight);
  });
}

}  // namespace

template <typename Vendor, typename T>
void muon_momentum_device(const double* scale, double momentum,
                          const DeviceTable<MuonMomentumRow<T>>& matrices, Stream& stream) {
  launch(muon_momentum_pieces<T>, grid_of_pieces(matrices), stream, scale,
         static_cast<float>(momentum), matrices);
}

template <typename Vendor, typename T>
void muon_update_device(const double* scale, const double* learning_rate, double weight_decay,
                        const DeviceTable<MuonUpdateRow<T>>& matrices, Stream& stream) {
  launch(muon_update_pieces<T>, grid_of_pieces(matrices), stream, scale, learning_rate,
         weight_decay, matrices);
}

template void muon_momentum_device<ThisVendor, float>(const double*, double,
                                                      const DeviceTable<MuonMomentumRow<float>>&,
                                                      Stream&);
template void muon_momentum_device<ThisVendor, BFloat16>(
    const double*, double, const DeviceTable<MuonMomentumRow<BFloat16>>&, Stream&);
template void muon_update_device<ThisVendor, float>(const double*, const double*, double,
                                                    const DeviceTable<MuonUpdateRow<float>>&,
                                                    Stream&);
template void muon_update_device<ThisVendor, BFloat16>(const double*, const double*, double,
                                                       const DeviceTable<MuonUpdateRow<BFloat16>>&,
                                                       Stream&);

}  // namespace tessera
