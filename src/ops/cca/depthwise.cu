#include <algorithm>

#include "ops/cca/depthwise_kernels.h"
#include "ops/weight_parts_device.h"

namespace tessera {
namespace {

constexpr int kColumnThreads = 128;  // threads of a block that sums over tokens

/// The weights of a pack of channels: earlier() of the tap at t - 1, own() of the tap at t.
template <int size>
struct TapWeights {
  __device__ TapWeights(const float* weight, int64_t pack)
      : pairs(load_pack<2 * size>(weight, pack)) {}
  __device__ float earlier(int i) const { return pairs.values[2 * i]; }
  __device__ float own(int i) const { return pairs.values[2 * i + 1]; }

  Pack<float, 2 * size> pairs;
};

/// Returns a pack of a row in f32, or zeros if `is_read` is false: the row is outside the document.
template <int size, typename T>
__device__ Pack<float, size> widened(bool is_read, const T* row, int64_t pack) {
  Pack<float, size> result{};
  if (!is_read) return result;
  const Pack<T, size> values = load_pack<size>(row, pack);
  for (int i = 0; i < size; ++i) result.values[i] = static_cast<float>(values.values[i]);
  return result;
}

/// Writes the taps, with a thread for each pack of channels of each token.
template <typename T, int size>
__global__ void write_taps(DepthwiseForward<T> depthwise) {
  const int64_t packs = depthwise.channels / size;
  for_my_elements<1>(depthwise.tokens * packs, [&](int64_t index, auto) {
    const int64_t token = index / packs, pack = index % packs;
    const int reach = depthwise.reach(token);
    const auto current = widened<size>(true, depthwise.row(token), pack);
    const auto earlier =
        widened<size>(reach > 0, reach > 0 ? depthwise.row(token - 1) : nullptr, pack);
    const auto earliest =
        widened<size>(reach > 1, reach > 1 ? depthwise.row(token - 2) : nullptr, pack);
    const TapWeights<size> weight(depthwise.weight, pack);
    const auto bias = load_pack<size>(depthwise.bias, pack);
    const auto y = [&](int i, float before, float now) {
      return weight.earlier(i) * before + weight.own(i) * now + bias.values[i];
    };
    Pack<T, 2 * size> taps;
    for (int i = 0; i < size; ++i) {
      taps.values[2 * i] = round_to<T>(y(i, earliest.values[i], earlier.values[i]));
      taps.values[2 * i + 1] = round_to<T>(y(i, earlier.values[i], current.values[i]));
    }
    store_pack(depthwise.taps, index, taps);
  });
}

/// Writes the gradient of x, and the parts of the gradients of the weight and the bias. A thread
/// has a pack of channels (grid x) and a part of the tokens (grid y). It takes its tokens from the
/// last to the first: the gradients at a token, which stay in registers, are terms of the gradients
/// at the token before it.
template <typename T, int size>
__global__ void __launch_bounds__(kColumnThreads)
    depthwise_gradient(DepthwiseBackward<T> depthwise, int64_t parts) {
  const int64_t packs = depthwise.channels / size;
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const int64_t part = blockIdx.y;
  const int64_t begin = depthwise.tokens * part / parts;
  const int64_t end = depthwise.tokens * (part + 1) / parts;
  const TapWeights<size> weight(depthwise.weight, pack);
  const auto taps_gradient = [&](bool is_read, int64_t token) {
    return widened<2 * size>(is_read, depthwise.taps_gradient, token * packs + pack);
  };
  // The gradients of the taps and of y at the token after the current one.
  const bool is_cut = end < depthwise.tokens;
  Pack<float, 2 * size> next = taps_gradient(is_cut, end);
  const Pack<float, 2 * size> last = taps_gradient(is_cut && depthwise.is_followed(end), end + 1);
  float next_y_gradient[size];
  for (int i = 0; i < size; ++i) next_y_gradient[i] = next.values[2 * i + 1] + last.values[2 * i];

  Pack<float, 2 * size> weight_gradient{};
  Pack<float, size> bias_gradient{};
  for (int64_t token = end - 1; token >= begin; --token) {
    const bool is_followed = depthwise.is_followed(token);
    const Pack<float, 2 * size> current = taps_gradient(true, token);
    const auto x = widened<size>(true, depthwise.x, token * packs + pack);
    Pack<T, size> x_gradient;
    for (int i = 0; i < size; ++i) {
      const float after = is_followed ? next_y_gradient[i] : 0.0f;
      const float y_gradient =
          current.values[2 * i + 1] + (is_followed ? next.values[2 * i] : 0.0f);
      x_gradient.values[i] = round_to<T>(weight.own(i) * y_gradient + weight.earlier(i) * after);
      weight_gradient.values[2 * i] += after * x.values[i];
      weight_gradient.values[2 * i + 1] += y_gradient * x.values[i];
      bias_gradient.values[i] += current.values[2 * i] + current.values[2 * i + 1];
      next_y_gradient[i] = y_gradient;
    }
    store_pack(depthwise.x_gradient, token * packs + pack, x_gradient);
    next = current;
  }
  float* const sums = depthwise.parts + part * 3 * depthwise.channels;
  for (int half = 0; half < 2; ++half) {  // a part may be aligned to 16 bytes, and not to 32
    Pack<float, size> values;
    for (int i = 0; i < size; ++i) values.values[i] = weight_gradient.values[half * size + i];
    store_pack(sums, 2 * pack + half, values);
  }
  store_pack(sums + 2 * depthwise.channels, pack, bias_gradient);
}

}  // namespace

template <typename Vendor, typename T>
void depthwise_device(const DepthwiseForward<T>& depthwise, Stream& stream) {
  with_pack_size<kPackSize<T> / 2>(depthwise.channels, [&](auto size) {
    const int64_t packs = depthwise.tokens * (depthwise.channels / size);
    launch(write_taps<T, size>, grid_of_elements<1>(packs), stream, depthwise);
  });
}

template <typename Vendor, typename T>
void depthwise_gradient_device(const DepthwiseBackward<T>& depthwise, int64_t parts,
                               Stream& stream) {
  with_pack_size<kPackSize<T> / 2>(depthwise.channels, [&](auto size) {
    const int64_t packs = depthwise.channels / size;
    launch(depthwise_gradient<T, size>,
           {.blocks = (packs + kColumnThreads - 1) / kColumnThreads,
            .threads = kColumnThreads,
            .blocks_y = parts},
           stream, depthwise, parts);
  });
  add_weight_parts_device({.count = parts,
                           .width = 3 * depthwise.channels,
                           .parts = depthwise.parts,
                           .gradients = {depthwise.weight_gradient, depthwise.bias_gradient},
                           .sizes = {2 * depthwise.channels, depthwise.channels}},
                          stream);
}

template void depthwise_device<ThisVendor>(const DepthwiseForward<float>&, Stream&);
template void depthwise_device<ThisVendor>(const DepthwiseForward<BFloat16>&, Stream&);
template void depthwise_gradient_device<ThisVendor>(const DepthwiseBackward<float>&, int64_t,
                                                    Stream&);
template void depthwise_gradient_device<ThisVendor>(const DepthwiseBackward<BFloat16>&, int64_t,
                                                    Stream&);

}  // namespace tessera
