#pragma once

#include "base/parallel.h"
#include "ops/cca/depthwise_kernels.h"

namespace tessera {

/// Computes the depthwise convolution: its definition.
///   taps[t, c, 0] = y[t - 1, c], taps[t, c, 1] = y[t, c],
///   y[t, c] = weight[c, 0] * x[t - 1, c] + weight[c, 1] * x[t, c] + bias[c],
/// where x is 0 and y is the bias before the document's start.
template <typename T>
void depthwise_plain(const DepthwiseForward<T>& depthwise, int threads) {
  using Wide = Compute<T>;
  parallel_ranges(threads, depthwise.tokens, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token) {
      const int reach = depthwise.reach(token);
      for (int64_t c = 0; c < depthwise.channels; ++c) {
        const Wide* weight = depthwise.weight + 2 * c;
        const auto x = [&](int back) {
          return back <= reach ? static_cast<Wide>(depthwise.row(token - back)[c]) : Wide{0};
        };
        const auto y = [&](int back) {
          return weight[0] * x(back + 1) + weight[1] * x(back) + depthwise.bias[c];
        };
        T* taps = depthwise.taps + 2 * (token * depthwise.channels + c);
        taps[0] = static_cast<T>(reach > 0 ? y(1) : depthwise.bias[c]);
        taps[1] = static_cast<T>(y(0));
      }
    }
  });
}

/// Computes its gradients, channel by channel: the definition. Terms of token t + 1 are 0 if it
/// does not follow t in the document.
///   y_gradient[t, c] = taps_gradient[t, c, 1] + taps_gradient[t + 1, c, 0]
///   x_gradient[t, c] = weight[c, 1] * y_gradient[t, c] + weight[c, 0] * y_gradient[t + 1, c]
///   weight_gradient[c, 0] = sum_t y_gradient[t + 1, c] * x[t, c]
///   weight_gradient[c, 1] = sum_t y_gradient[t, c] * x[t, c]
///   bias_gradient[c] = sum_t (taps_gradient[t, c, 0] + taps_gradient[t, c, 1])
template <typename T>
void depthwise_gradient_plain(const DepthwiseBackward<T>& depthwise, int threads) {
  using Wide = Compute<T>;
  parallel_ranges(threads, depthwise.channels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const auto tap_gradient = [&](int64_t token, int tap) {
        return static_cast<Wide>(
            depthwise.taps_gradient[2 * (token * depthwise.channels + c) + tap]);
      };
      const auto y_gradient = [&](int64_t token) {
        return tap_gradient(token, 1) +
               (depthwise.is_followed(token) ? tap_gradient(token + 1, 0) : Wide{0});
      };
      const Wide* weight = depthwise.weight + 2 * c;
      Wide earlier_weight_gradient = 0, own_weight_gradient = 0, bias_gradient = 0;
      for (int64_t token = 0; token < depthwise.tokens; ++token) {
        const int64_t at = token * depthwise.channels + c;
        const auto x = static_cast<Wide>(depthwise.x[at]);
        const Wide next_y_gradient = depthwise.is_followed(token) ? y_gradient(token + 1) : Wide{0};
        depthwise.x_gradient[at] =
            static_cast<T>(weight[1] * y_gradient(token) + weight[0] * next_y_gradient);
        earlier_weight_gradient += next_y_gradient * x;
        own_weight_gradient += y_gradient(token) * x;
        bias_gradient += tap_gradient(token, 0) + tap_gradient(token, 1);
      }
      depthwise.weight_gradient[2 * c] = earlier_weight_gradient;
      depthwise.weight_gradient[2 * c + 1] = own_weight_gradient;
      depthwise.bias_gradient[c] = bias_gradient;
    }
  });
}

}  // namespace tessera
