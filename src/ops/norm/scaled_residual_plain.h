#pragma once

#include <cmath>

#include "base/parallel.h"
#include "ops/norm/scaled_residual_kernels.h"

namespace tessera {

template <typename T>
void scale_row_plain(const ScaledForward<T>& scaled, int64_t start) {
  using Wide = Compute<T>;
  for (int64_t i = 0; i < scaled.width; ++i) {
    Wide sum =
        (static_cast<Wide>(scaled.x[start + i]) + scaled.of_x.bias[i]) * scaled.of_x.scale[i];
    if (scaled.stream != nullptr) {
      sum += (scaled.stream[start + i] + scaled.of_stream.bias[i]) * scaled.of_stream.scale[i];
    }
    scaled.sum[start + i] = sum;
  }
}

/// It is not inlined, so that a kept sum is normalised by the same code.
template <typename T>
[[gnu::noinline]] void normalise_sum_plain(const ScaledForward<T>& scaled, int64_t row) {
  using Wide = Compute<T>;
  const int64_t start = row * scaled.width;
  const Wide* sum = scaled.sum + start;
  Wide squares = 0;
  for (int64_t i = 0; i < scaled.width; ++i) squares += sum[i] * sum[i];
  const Wide mean = squares / static_cast<Wide>(scaled.width);
  const Wide inverse = 1 / std::sqrt(mean + static_cast<Wide>(scaled.epsilon));
  scaled.inverse[row] = inverse;
  for (int64_t i = 0; i < scaled.width; ++i) {
    scaled.output[start + i] = static_cast<T>(sum[i] * inverse * scaled.weight[i]);
  }
}

/// The definition of residual scaling and its norm, row by row.
template <typename T>
void scaled_residual_plain(const ScaledForward<T>& scaled, int threads) {
  parallel_ranges(threads, scaled.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      if (scaled.x != nullptr) scale_row_plain(scaled, row * scaled.width);
      normalise_sum_plain(scaled, row);
    }
  });
}

/// The definition of its gradients. `parts` has one part here.
template <typename T>
void scaled_residual_gradient_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  const int64_t width = scaled.width;
  const auto of_sum_of = [&](int64_t row, int64_t i, Wide product_mean) {
    const int64_t at = row * width + i;
    const Wide gradient = static_cast<Wide>(scaled.of_output[at]) * scaled.weight[i];
    const Wide normalised = scaled.sum[at] * scaled.inverse[row];
    const Wide through = scaled.inverse[row] * (gradient - normalised * product_mean);
    return scaled.of_sum != nullptr ? through + scaled.of_sum[at] : through;
  };
  const auto product_mean = [&](int64_t row) {
    Wide total = 0;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = row * width + i;
      total += static_cast<Wide>(scaled.of_output[at]) * scaled.weight[i] * scaled.sum[at] *
               scaled.inverse[row];
    }
    return total / static_cast<Wide>(width);
  };
  Wide* const sums = scaled.parts;
  std::fill_n(sums, kScaledSums * width, Wide{0});
  for (int64_t row = 0; row < scaled.rows; ++row) {
    const Wide mean = product_mean(row);
    parallel_ranges(threads, width, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = row * width + i;
        const Wide of_sum = of_sum_of(row, i, mean);
        sums[i] += of_sum;
        sums[width + i] += of_sum * static_cast<Wide>(scaled.x[at]);
        if (scaled.stream != nullptr) sums[2 * width + i] += of_sum * scaled.stream[at];
        sums[3 * width + i] +=
            static_cast<Wide>(scaled.of_output[at]) * scaled.sum[at] * scaled.inverse[row];
        scaled.x_gradient[at] = static_cast<T>(of_sum * scaled.of_x.scale[i]);
        if (scaled.stream != nullptr) {
          scaled.stream_gradient[at] = of_sum * scaled.of_stream.scale[i];
        }
      }
    });
  }
  for (int64_t i = 0; i < width; ++i) {
    const Wide column[] = {sums[i], sums[width + i], sums[2 * width + i], sums[3 * width + i]};
    put_vector_gradients(scaled, i, column);
  }
}

}  // namespace tessera
