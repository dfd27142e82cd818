#pragma once

#include "base/parallel.h"
#include "ops/cca/depthwise_kernels.h"

namespace tessera {

/// The definition of the depthwise convolution.
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

/// The definition of its gradients, channel by channel.
template <typename T>
void depthwise_gradient_plain(const DepthwiseBackward<T>& depthwise, int threads) {
  using Wide = Compute<T>;
  parallel_ranges(threads, depthwise.channels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const auto of_tap = [&](int64_t token, int tap) {
        return static_cast<Wide>(depthwise.of_taps[2 * (token * depthwise.channels + c) + tap]);
      };
      const auto of_y = [&](int64_t token) {
        return of_tap(token, 1) + (depthwise.is_followed(token) ? of_tap(token + 1, 0) : Wide{0});
      };
      const Wide* weight = depthwise.weight + 2 * c;
      Wide of_earlier = 0, of_own = 0, of_bias = 0;
      for (int64_t token = 0; token < depthwise.tokens; ++token) {
        const int64_t at = token * depthwise.channels + c;
        const auto x = static_cast<Wide>(depthwise.x[at]);
        const Wide of_next = depthwise.is_followed(token) ? of_y(token + 1) : Wide{0};
        depthwise.of_x[at] = static_cast<T>(weight[1] * of_y(token) + weight[0] * of_next);
        of_earlier += of_next * x;
        of_own += of_y(token) * x;
        of_bias += of_tap(token, 0) + of_tap(token, 1);
      }
      depthwise.of_weight[2 * c] = of_earlier;
      depthwise.of_weight[2 * c + 1] = of_own;
      depthwise.of_bias[c] = of_bias;
    }
  });
}

}  // namespace tessera
