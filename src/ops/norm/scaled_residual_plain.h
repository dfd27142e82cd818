#pragma once

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/norm/scaled_residual_kernels.h"

namespace tessera {

/// Scales a row. The second term is added only if there is a stream.
///   sum[i] = (x[i] + x_scaling.bias[i]) * x_scaling.scale[i]
///          + (stream[i] + stream_scaling.bias[i]) * stream_scaling.scale[i]
template <typename T>
void scale_row_plain(const ScaledForward<T>& scaled, int64_t start) {
  using Wide = Compute<T>;
  for (int64_t i = 0; i < scaled.width; ++i) {
    Wide sum = (static_cast<Wide>(scaled.x[start + i]) + scaled.x_scaling.bias[i]) *
               scaled.x_scaling.scale[i];
    if (scaled.stream != nullptr) {
      sum += (scaled.stream[start + i] + scaled.stream_scaling.bias[i]) *
             scaled.stream_scaling.scale[i];
    }
    scaled.sum[start + i] = sum;
  }
}

/// Writes output[i] = sum[i] * weight[i] / sqrt(mean_i(sum[i]^2) + epsilon). It is not inlined, so
/// a kept sum is normalised by the same code, which gives the same bits.
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

/// Defines residual scaling and its norm, row by row.
template <typename T>
void scaled_residual_plain(const ScaledForward<T>& scaled, int threads) {
  parallel_each(threads, scaled.rows, 1, [&](int64_t row) {
    if (scaled.x != nullptr) scale_row_plain(scaled, row * scaled.width);
    normalise_sum_plain(scaled, row);
  });
}

/// Returns mean_i(n[i] * g[i]) over a row, with n = sum * inverse and g = output_gradient * weight.
template <typename T>
Compute<T> scaled_product_mean(const ScaledBackward<T>& scaled, int64_t row) {
  using Wide = Compute<T>;
  Wide total = 0;
  for (int64_t i = 0; i < scaled.width; ++i) {
    const int64_t offset = row * scaled.width + i;
    total += static_cast<Wide>(scaled.output_gradient[offset]) * scaled.weight[i] *
             scaled.sum[offset] * scaled.inverse[row];
  }
  return total / static_cast<Wide>(scaled.width);
}

/// Returns the gradient of an element of the sum:
///   d = inverse * (g - n * mean(n * g)) + sum_gradient
template <typename T>
Compute<T> scaled_sum_gradient(const ScaledBackward<T>& scaled, int64_t row, int64_t i,
                               Compute<T> product_mean) {
  using Wide = Compute<T>;
  const int64_t offset = row * scaled.width + i;
  const Wide gradient = static_cast<Wide>(scaled.output_gradient[offset]) * scaled.weight[i];
  const Wide normalised = scaled.sum[offset] * scaled.inverse[row];
  const Wide through = scaled.inverse[row] * (gradient - normalised * product_mean);
  return scaled.sum_gradient != nullptr ? through + scaled.sum_gradient[offset] : through;
}

/// Computes the gradients of the vectors. Each column is summed over the rows in order, in a single
/// part. It must run before the gradients of x and the stream are written, because these may
/// overwrite its inputs.
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
        const int64_t offset = row * width + i;
        const Wide gradient = scaled_sum_gradient(scaled, row, i, product_mean);
        sums[i] += gradient;
        sums[width + i] += gradient * static_cast<Wide>(scaled.x[offset]);
        if (scaled.stream != nullptr) sums[2 * width + i] += gradient * scaled.stream[offset];
        sums[3 * width + i] += static_cast<Wide>(scaled.output_gradient[offset]) *
                               scaled.sum[offset] * scaled.inverse[row];
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const Wide column[] = {sums[i], sums[width + i], sums[2 * width + i], sums[3 * width + i]};
      put_vector_gradients(scaled, i, column);
    }
  });
}

/// Defines the gradients:
///   x_gradient = d * x_scaling.scale, stream_gradient = d * stream_scaling.scale
template <typename T>
void scaled_residual_gradient_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  scaled_vector_gradients_plain(scaled, threads);
  parallel_each(threads, scaled.rows, 1, [&](int64_t row) {
    const Wide product_mean = scaled_product_mean(scaled, row);
    for (int64_t i = 0; i < scaled.width; ++i) {
      const int64_t offset = row * scaled.width + i;
      const Wide gradient = scaled_sum_gradient(scaled, row, i, product_mean);
      scaled.x_gradient[offset] = static_cast<T>(gradient * scaled.x_scaling.scale[i]);
      if (scaled.stream != nullptr) {
        scaled.stream_gradient[offset] = gradient * scaled.stream_scaling.scale[i];
      }
    }
  });
}

}  // namespace tessera
