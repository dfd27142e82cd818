#include <algorithm>

#include "ops/cca/depthwise_kernels.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

/// Writes the taps of one token. `reach` tokens before it belong to its document and are read.
template <int reach, typename T>
[[gnu::noinline]] void write_taps(const DepthwiseForward<T>& depthwise, int64_t token) {
  const T* current = depthwise.row(token);
  const T* earlier = reach > 0 ? depthwise.row(token - 1) : nullptr;
  const T* earliest = reach > 1 ? depthwise.row(token - 2) : nullptr;
  const float* weight = depthwise.weight;
  const float* bias = depthwise.bias;
  T* taps = depthwise.taps + 2 * token * depthwise.channels;
#pragma GCC ivdep
  for (int64_t c = 0; c < depthwise.channels; ++c) {
    float before = bias[c];
    float now = weight[2 * c + 1] * static_cast<float>(current[c]) + bias[c];
    if constexpr (reach > 0) {
      const auto x = static_cast<float>(earlier[c]);
      before += weight[2 * c + 1] * x;
      now += weight[2 * c] * x;
    }
    if constexpr (reach > 1) before += weight[2 * c] * static_cast<float>(earliest[c]);
    taps[2 * c] = static_cast<T>(before);
    taps[2 * c + 1] = static_cast<T>(now);
  }
}

/// Writes the gradient of one token's x, and adds its share to the gradients of the weight and the
/// bias. `ahead` tokens after it belong to its document.
template <int ahead, typename T>
[[gnu::noinline]] void add_token(const DepthwiseBackward<T>& depthwise, int64_t token,
                                 float* weight_gradient, float* bias_gradient) {
  const int64_t channels = depthwise.channels;
  const T* current = depthwise.taps_gradient + 2 * token * channels;
  const T* next = current + (ahead > 0 ? 2 * channels : 0);
  const T* last = current + (ahead > 1 ? 4 * channels : 0);
  const T* x = depthwise.x + token * channels;
  const float* weight = depthwise.weight;
  T* x_gradient = depthwise.x_gradient + token * channels;
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const auto current_gradient = static_cast<float>(current[2 * c + 1]);
    float y_gradient = current_gradient;
    float next_y_gradient = 0;
    if constexpr (ahead > 0) {
      y_gradient += static_cast<float>(next[2 * c]);
      next_y_gradient = static_cast<float>(next[2 * c + 1]);
    }
    if constexpr (ahead > 1) next_y_gradient += static_cast<float>(last[2 * c]);
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
    with_neighbours(depthwise.reach(token),
                    [&](auto reach) { write_taps<reach>(depthwise, token); });
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
      with_neighbours(depthwise.ahead(token), [&](auto ahead) {
        add_token<ahead>(depthwise, token, weight_gradient, bias_gradient);
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
