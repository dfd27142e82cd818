#pragma once

#include <algorithm>
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

/// The mean of n g over a row.
template <typename T>
Compute<T> scaled_product_mean(const ScaledBackward<T>& scaled, int64_t row) {
  using Wide = Compute<T>;
  Wide total = 0;
  for (int64_t i = 0; i < scaled.width; ++i) {
    const int64_t at = row * scaled.width + i;
    total += static_cast<Wide>(scaled.of_output[at]) * scaled.weight[i] * scaled.sum[at] *
             scaled.inverse[row];
  }
  return total / static_cast<Wide>(scaled.width);
}

/// The gradient d of an element of the sum.
template <typename T>
Compute<T> scaled_sum_gradient(const ScaledBackward<T>& scaled, int64_t row, int64_t i,
                               Compute<T> product_mean) {
  using Wide = Compute<T>;
  const int64_t at = row * scaled.width + i;
  const Wide gradient = static_cast<Wide>(scaled.of_output[at]) * scaled.weight[i];
  const Wide normalised = scaled.sum[at] * scaled.inverse[row];
  const Wide through = scaled.inverse[row] * (gradient - normalised * product_mean);
  return scaled.of_sum != nullptr ? through + scaled.of_sum[at] : through;
}

/// The gradients of the vectors. Each column is summed over the rows in order, in the one part that
/// there is. It must run before the gradients of x and the stream are written, because these may
/// overwrite what it reads.
template <typename T>
void scaled_vector_gradients_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  const int64_t width = scaled.width;
  Wide* const sums = scaled.parts;
  parallel_ranges(threads, width, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t s = 0; s < kScaledSums; ++s) {
      std::fill(sums + s * width + begin, sums + s * width + end, Wide{0});
    }
    for (int64_t row = 0; row < scaled.rows; ++row) {
      const Wide product_mean = scaled_product_mean(scaled, row);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = row * width + i;
        const Wide of_sum = scaled_sum_gradient(scaled, row, i, product_mean);
        sums[i] += of_sum;
        sums[width + i] += of_sum * static_cast<Wide>(scaled.x[at]);
        if (scaled.stream != nullptr) sums[2 * width + i] += of_sum * scaled.stream[at];
        sums[3 * width + i] +=
            static_cast<Wide>(scaled.of_output[at]) * scaled.sum[at] * scaled.inverse[row];
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const Wide column[] = {sums[i], sums[width + i], sums[2 * width + i], sums[3 * width + i]};
      put_vector_gradients(scaled, i, column);
    }
  });
}

/// The definition of its gradients.
template <typename T>
void scaled_residual_gradient_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  scaled_vector_gradients_plain(scaled, threads);
  parallel_ranges(threads, scaled.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const Wide product_mean = scaled_product_mean(scaled, row);
      for (int64_t i = 0; i < scaled.width; ++i) {
        const int64_t at = row * scaled.width + i;
        const Wide of_sum = scaled_sum_gradient(scaled, row, i, product_mean);
        scaled.x_gradient[at] = static_cast<T>(of_sum * scaled.of_x.scale[i]);
        if (scaled.stream != nullptr) {
          scaled.stream_gradient[at] = of_sum * scaled.of_stream.scale[i];
        }
      }
    }
  });
}

}  // namespace tessera
