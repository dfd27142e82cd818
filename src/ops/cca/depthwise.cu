#include <algorithm>

#include "ops/cca/depthwise_kernels.h"
#include "ops/weight_parts_device.h"

namespace tessera {
namespace {

constexpr int kColumnThreads = 128;  // threads of a block that sums over tokens

// A pack is pack_size neighbouring channels, which a thread moves in one access.

/// The weights of a pack of channels: earlier() of the tap at t - 1, own() of the tap at t.
template <int pack_size>
struct TapWeights {
  __device__ TapWeights(const float* weight, int64_t pack)
      : pairs(load_pack<2 * pack_size>(weight, pack)) {}
  __device__ float earlier(int i) const { return pairs.values[2 * i]; }
  __device__ float own(int i) const { return pairs.values[2 * i + 1]; }

  Pack<float, 2 * pack_size> pairs;
};

/// Returns a pack of a row in f32, or zeros if `is_read` is false: the row is outside the document.
template <int pack_size, typename T>
__device__ Pack<float, pack_size> widened(bool is_read, const T* row, int64_t pack) {
  Pack<float, pack_size> result{};
  if (!is_read) return result;
  const Pack<T, pack_size> values = load_pack<pack_size>(row, pack);
  for (int i = 0; i < pack_size; ++i) result.values[i] = static_cast<float>(values.values[i]);
  return result;
}

/// Writes the taps, with a thread for each pack of channels of each token.
template <typename T, int pack_size>
__global__ void write_taps(DepthwiseForward<T> depthwise) {
  const int64_t packs = depthwise.channels / pack_size;
  for_my_elements<1>(depthwise.tokens * packs, [&](int64_t index, auto) {
    const int64_t token = index / packs, pack = index % packs;
    const int earlier_count = depthwise.earlier_count(token);
    const auto current = widened<pack_size>(true, depthwise.row(token), pack);
    const auto row_back = [&](int back) {  // zeros if that row is outside the document
      const bool is_read = back <= earlier_count;
      return widened<pack_size>(is_read, is_read ? depthwise.row(token - back) : nullptr, pack);
    };
    const auto earlier = row_back(1), earliest = row_back(2);
    const TapWeights<pack_size> weight(depthwise.weight, pack);
    const auto bias = load_pack<pack_size>(depthwise.bias, pack);
    const auto y = [&](int i, float earlier_x, float own_x) {
      return weight.earlier(i) * earlier_x + weight.own(i) * own_x + bias.values[i];
    };
    Pack<T, 2 * pack_size> taps;
    for (int i = 0; i < pack_size; ++i) {
      taps.values[2 * i] = round_to<T>(y(i, earliest.values[i], earlier.values[i]));
      taps.values[2 * i + 1] = round_to<T>(y(i, earlier.values[i], current.values[i]));
    }
    store_pack(depthwise.taps, index, taps);
  });
}

/// Writes the gradient of x, and the parts of the gradients of the weight and the bias (formulas:
/// depthwise_gradient_plain()). A thread has a pack of channels (grid x) and a part of the tokens
/// (grid y). The thread goes from its last token to its first: the gradients at a token, which stay
/// in registers, are terms of the gradients at the token before.
template <typename T, int pack_size>
__global__ void __launch_bounds__(kColumnThreads)
    depthwise_gradient(DepthwiseBackward<T> depthwise, int64_t parts) {
  const int64_t packs = depthwise.channels / pack_size;
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const int64_t part = blockIdx.y;
  const int64_t begin = depthwise.tokens * part / parts;
  const int64_t end = depthwise.tokens * (part + 1) / parts;
  const TapWeights<pack_size> weight(depthwise.weight, pack);
  const auto taps_gradient = [&](bool is_read, int64_t token) {
    return widened<2 * pack_size>(is_read, depthwise.taps_gradient, token * packs + pack);
  };
  // The gradients of the taps and of y at the token after the current one.
  const bool has_later_part = end < depthwise.tokens;
  Pack<float, 2 * pack_size> next = taps_gradient(has_later_part, end);
  const auto second_next = taps_gradient(has_later_part && depthwise.is_followed(end), end + 1);
  float next_y_gradient[pack_size];
  for (int i = 0; i < pack_size; ++i) {
    next_y_gradient[i] = next.values[2 * i + 1] + second_next.values[2 * i];
  }

  Pack<float, 2 * pack_size> weight_gradient{};
  Pack<float, pack_size> bias_gradient{};
  for (int64_t token = end - 1; token >= begin; --token) {
    const bool is_followed = depthwise.is_followed(token);
    const Pack<float, 2 * pack_size> current = taps_gradient(true, token);
    const auto x = widened<pack_size>(true, depthwise.x, token * packs + pack);
    Pack<T, pack_size> x_gradient;
    for (int i = 0; i < pack_size; ++i) {
      const float later_gradient = is_followed ? next_y_gradient[i] : 0.0f;
      const float y_gradient =
          current.values[2 * i + 1] + (is_followed ? next.values[2 * i] : 0.0f);
      x_gradient.values[i] = round_to<T>(weight.own(i) * y_gradient +
                                          weight.earlier(i) * later_gradient);
      weight_gradient.values[2 * i] += later_gradient * x.values[i];
      weight_gradient.values[2 * i + 1] += y_gradient * x.values[i];
      bias_gradient.values[i] += current.values[2 * i] + current.values[2 * i + 1];
      next_y_gradient[i] = y_gradient;
    }
    store_pack(depthwise.x_gradient, token * packs + pack, x_gradient);
    next = current;
  }
  float* const sums = depthwise.parts + part * 3 * depthwise.channels;
  for (int half = 0; half < 2; ++half) {  // halves: a part may be aligned to 16 bytes only, not 32
    Pack<float, pack_size> values;
    for (int i = 0; i < pack_size; ++i) {
      values.values[i] = weight_gradient.values[half * pack_size + i];
    }
    store_pack(sums, 2 * pack + half, values);
  }
  store_pack(sums + 2 * depthwise.channels, pack, bias_gradient);
}

}  // namespace

// Packs of x have half of the elements that one access moves, because their taps are twice as many.

template <typename Vendor, typename T>
void depthwise_device(const DepthwiseForward<T>& depthwise, Stream& stream) {
  with_pack_size<kPackSize<T> / 2>(depthwise.channels, [&](auto pack_size) {
    const int64_t packs = depthwise.tokens * (depthwise.channels / pack_size);
    launch(write_taps<T, pack_size>, grid_of_elements<1>(packs), stream, depthwise);
  });
}

template <typename Vendor, typename T>
void depthwise_gradient_device(const DepthwiseBackward<T>& depthwise, int64_t parts,
                               Stream& stream) {
  with_pack_size<kPackSize<T> / 2>(depthwise.channels, [&](auto pack_size) {
    const int64_t packs = depthwise.channels / pack_size;
    launch(depthwise_gradient<T, pack_size>,
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
