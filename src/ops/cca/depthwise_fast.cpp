#include <algorithm>

#include "ops/cca/depthwise_kernels.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

/// Writes the taps of one token. `earlier_count` tokens before it belong to its document and are
/// read.
template <int earlier_count, typename T>
[[gnu::noinline]] void write_taps(const DepthwiseForward<T>& depthwise, int64_t token) {
  const T* current = depthwise.row(token);
  const T* earlier = earlier_count > 0 ? depthwise.row(token - 1) : nullptr;
  const T* earliest = earlier_count > 1 ? depthwise.row(token - 2) : nullptr;
  const float* weight = depthwise.weight;
  const float* bias = depthwise.bias;
  T* taps = depthwise.taps + 2 * token * depthwise.channels;
#pragma GCC ivdep
  for (int64_t c = 0; c < depthwise.channels; ++c) {
    float earlier_tap = bias[c];
    float current_tap = weight[2 * c + 1] * static_cast<float>(current[c]) + bias[c];
    if constexpr (earlier_count > 0) {
      const auto x = static_cast<float>(earlier[c]);
      earlier_tap += weight[2 * c + 1] * x;
      current_tap += weight[2 * c] * x;
    }
    if constexpr (earlier_count > 1) earlier_tap += weight[2 * c] * static_cast<float>(earliest[c]);
    taps[2 * c] = static_cast<T>(earlier_tap);
    taps[2 * c + 1] = static_cast<T>(current_tap);
  }
}

/// Writes the gradient of one token's x, and adds its share to the gradients of the weight and the
/// bias. `later_count` tokens after it belong to its document.
template <int later_count, typename T>
[[gnu::noinline]] void add_token(const DepthwiseBackward<T>& depthwise, int64_t token,
                                 float* weight_gradient, float* bias_gradient) {
  const int64_t channels = depthwise.channels;
  const T* current = depthwise.taps_gradient + 2 * token * channels;
  const T* next = current + (later_count > 0 ? 2 * channels : 0);
  const T* second_next = current + (later_count > 1 ? 4 * channels : 0);
  const T* x = depthwise.x + token * channels;
  const float* weight = depthwise.weight;
  T* x_gradient = depthwise.x_gradient + token * channels;
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const auto current_gradient = static_cast<float>(current[2 * c + 1]);
    float y_gradient = current_gradient;
    float next_y_gradient = 0;
    if constexpr (later_count > 0) {
      y_gradient += static_cast<float>(next[2 * c]);
      next_y_gradient = static_cast<float>(next[2 * c + 1]);
    }
    if constexpr (later_count > 1) next_y_gradient += static_cast<float>(second_next[2 * c]);
    const auto value = static_cast<float>(x[c]);
    x_gradient[c] =
        static_cast<T>(weight[2 * c + 1] * y_gradient + weight[2 * c] * next_y_gradient);
    weight_gradient[2 * c] += next_y_gradient * value;
    weight_gradient[2 * c + 1] += y_gradient * value;
    bias_gradient[c] += static_cast<float>(current[2 * c]) + current_gradient;
  }
}

/// Calls body with `count` (0, 1 or 2 neighbours of a token in its document) as a constant.
template <typename Body>
void with_neighbours(int count, Body&& body) {
  if (count == 0) return body(std::integral_constant<int, 0>{});
  if (count == 1) return body(std::integral_constant<int, 1>{});
  body(std::integral_constant<int, 2>{});
}

}  // namespace

template <typename T>
void depthwise_fast(const DepthwiseForward<T>& depthwise, int threads) {
  parallel_each(threads, depthwise.tokens, row_grain(2 * depthwise.channels), [&](int64_t token) {
    with_neighbours(depthwise.earlier_count(token),
                    [&](auto earlier_count) { write_taps<earlier_count>(depthwise, token); });
  });
}

template <typename T>
void depthwise_gradient_fast(const DepthwiseBackward<T>& depthwise, int64_t parts, int threads) {
  const int64_t channels = depthwise.channels;
  parallel_items(threads, parts, [&](int64_t part, int) {
    float* weight_gradient = depthwise.parts + part * 3 * channels;
    float* bias_gradient = weight_gradient + 2 * channels;
    std::fill_n(weight_gradient, 3 * channels, 0.0f);
    const int64_t end = depthwise.tokens * (part + 1) / parts;
    for (int64_t token = depthwise.tokens * part / parts; token < end; ++token) {
      with_neighbours(depthwise.later_count(token), [&](auto later_count) {
        add_token<later_count>(depthwise, token, weight_gradient, bias_gradient);
      });
    }
  });
  add_weight_parts({.count = parts,
                    .width = 3 * channels,
                    .parts = depthwise.parts,
                    .gradients = {depthwise.weight_gradient, depthwise.bias_gradient},
                    .sizes = {2 * channels, channels}},
                   threads);
}

template void depthwise_fast(const DepthwiseForward<float>&, int);
template void depthwise_fast(const DepthwiseForward<BFloat16>&, int);
template void depthwise_gradient_fast(const DepthwiseBackward<float>&, int64_t, int);
template void depthwise_gradient_fast(const DepthwiseBackward<BFloat16>&, int64_t, int);

}  // namespace tessera
