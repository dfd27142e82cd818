#include "device/packs.h"
#include "ops/activation/activation_kernels.h"
#include "ops/activation/gelu_device.h"

namespace tessera {
namespace {

struct SiluAt {
  __device__ ActivationPoint<float> operator()(float x) const {
    const float sigmoid = 1.0f / (1.0f + expf(-x));
    return {x * sigmoid, sigmoid * (1.0f + x * (1.0f - sigmoid))};
  }
};
struct GeluAt {
  __device__ ActivationPoint<float> operator()(float x) const { return gelu_on_device(x); }
};

/// output = activation(gate) · up, for the pack of elements from `first` on. Point{}(x) is the
/// activation and its derivative at x. The pack of up becomes the pack of results.
template <int pack_size, typename Point, typename T>
__device__ void compute_pack(const GatedForward<T>& gated, int64_t first) {
  const auto gates = load_pack<pack_size>(gated.gate + first, 0);
  auto results = load_pack<pack_size>(gated.up + first, 0);
  for (int i = 0; i < pack_size; ++i) {
    const float value = Point{}(static_cast<float>(gates.values[i])).value;
    results.values[i] = round_to<T>(value * static_cast<float>(results.values[i]));
  }
  store_pack(gated.output + first, 0, results);
}

/// The formulas of GatedBackward. The packs of gate and up become those of their gradients.
template <int pack_size, typename Point, typename T>
__device__ void compute_pack(const GatedBackward<T>& gated, int64_t first) {
  auto gates = load_pack<pack_size>(gated.gate + first, 0);
  auto ups = load_pack<pack_size>(gated.up + first, 0);
  const auto gradients = load_pack<pack_size>(gated.output_gradient + first, 0);
  for (int i = 0; i < pack_size; ++i) {
    const ActivationPoint<float> at = Point{}(static_cast<float>(gates.values[i]));
    const auto gradient = static_cast<float>(gradients.values[i]);
    gates.values[i] = round_to<T>(gradient * static_cast<float>(ups.values[i]) * at.slope);
    ups.values[i] = round_to<T>(gradient * at.value);
  }
  store_pack(gated.gate_gradient + first, 0, gates);
  store_pack(gated.up_gradient + first, 0, ups);
}

template <typename Point, typename Gated>
__global__ void gated_kernel(Gated gated) {
  const GatedExtent& extent = gated.extent;
  const int64_t elements = extent.rows == nullptr ? extent.elements : *extent.rows * extent.width;
  for_my_elements<kPackSize<typename Gated::Element>>(elements, [&](int64_t first, auto pack_size) {
    compute_pack<pack_size, Point>(gated, first);
  });
}

}  // namespace

template <typename Vendor, typename Gated>
void gated_device(const Gated& gated, Activation kind, Stream& stream) {
  constexpr int kSize = kPackSize<typename Gated::Element>;
  launch(kind == Activation::silu ? gated_kernel<SiluAt, Gated> : gated_kernel<GeluAt, Gated>,
         grid_of_elements<kSize>(gated.extent.elements), stream, gated);
}

template void gated_device<ThisVendor>(const GatedForward<float>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedForward<BFloat16>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedBackward<float>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedBackward<BFloat16>&, Activation, Stream&);

}  // namespace tessera
