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

/// Writes output = activation(gate) · up for the pack of elements from `first` on.
/// ActivationAt{}(x) returns the activation and its derivative at x.
template <int pack_size, typename ActivationAt, typename T>
__device__ void write_pack(const GatedForward<T>& arguments, int64_t first) {
  const auto gates = load_pack<pack_size>(arguments.gate + first, 0);
  auto ups = load_pack<pack_size>(arguments.up + first, 0);  // overwritten with the results
  for (int i = 0; i < pack_size; ++i) {
    const float value = ActivationAt{}(static_cast<float>(gates.values[i])).value;
    ups.values[i] = round_to<T>(value * static_cast<float>(ups.values[i]));
  }
  store_pack(arguments.output + first, 0, ups);
}

/// Writes the gradients of a pack of elements (formulas: GatedBackward).
template <int pack_size, typename ActivationAt, typename T>
__device__ void write_pack(const GatedBackward<T>& arguments, int64_t first) {
  auto gates = load_pack<pack_size>(arguments.gate + first, 0);  // overwritten with gradients
  auto ups = load_pack<pack_size>(arguments.up + first, 0);      // overwritten with gradients
  const auto output_gradients = load_pack<pack_size>(arguments.output_gradient + first, 0);
  for (int i = 0; i < pack_size; ++i) {
    const auto [value, slope] = ActivationAt{}(static_cast<float>(gates.values[i]));
    const auto gradient = static_cast<float>(output_gradients.values[i]);
    gates.values[i] = round_to<T>(gradient * static_cast<float>(ups.values[i]) * slope);
    ups.values[i] = round_to<T>(gradient * value);
  }
  store_pack(arguments.gate_gradient + first, 0, gates);
  store_pack(arguments.up_gradient + first, 0, ups);
}

template <typename ActivationAt, typename Arguments>
__global__ void gated_kernel(Arguments arguments) {
  const auto [elements, row_count, width] = arguments.extent;
  for_my_elements<kPackSize<typename Arguments::Element>>(
      row_count == nullptr ? elements : *row_count * width,
      [&](int64_t first, auto pack) { write_pack<pack, ActivationAt>(arguments, first); });
}

}  // namespace

template <typename Vendor, typename Arguments>
void gated_device(const Arguments& arguments, Activation kind, Stream& stream) {
  launch(kind == Activation::silu ? gated_kernel<SiluAt, Arguments>
                                  : gated_kernel<GeluAt, Arguments>,
         grid_of_elements<kPackSize<typename Arguments::Element>>(arguments.extent.elements),
         stream, arguments);
}

template void gated_device<ThisVendor>(const GatedForward<float>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedForward<BFloat16>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedBackward<float>&, Activation, Stream&);
template void gated_device<ThisVendor>(const GatedBackward<BFloat16>&, Activation, Stream&);

}  // namespace tessera
