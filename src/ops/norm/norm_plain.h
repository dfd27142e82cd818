#pragma once

#include <cmath>

#include "base/parallel.h"
#include "ops/norm/norm_kernels.h"

namespace tessera {

/// Defines the norm, row by row, with mean_r = 0 for the rms norm and sum = x without a residual:
///   sum[r, i] = x[r, i] + residual[r, i]
///   output[r, i] = (sum[r, i] - mean_r) * inverse_r * weight[i]
///   inverse_r = 1 / sqrt(mean_i((sum[r, i] - mean_r)^2) + epsilon)
template <typename T>
void norm_plain(const NormForward<T>& norm, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, norm.rows, 1, [&](int64_t row) {
    const int64_t start = row * norm.width;
    const T* x = norm.x + start;
    if (norm.residual != nullptr) {
      T* sum = norm.sum + start;
      for (int64_t i = 0; i < norm.width; ++i) {
        sum[i] =
            static_cast<T>(static_cast<Wide>(x[i]) + static_cast<Wide>(norm.residual[start + i]));
      }
      x = sum;
    }
    const auto width = static_cast<Wide>(norm.width);
    Wide mean = 0;
    if (norm.mean != nullptr) {
      for (int64_t i = 0; i < norm.width; ++i) mean += static_cast<Wide>(x[i]);
      mean /= width;
      norm.mean[row] = mean;
    }
    Wide squares = 0;
    for (int64_t i = 0; i < norm.width; ++i) {
      const Wide centred = static_cast<Wide>(x[i]) - mean;
      squares += centred * centred;
    }
    const Wide inverse = 1 / std::sqrt(squares / width + static_cast<Wide>(norm.epsilon));
    norm.inverse[row] = inverse;
    for (int64_t i = 0; i < norm.width; ++i) {
      const Wide weight = norm.weight != nullptr ? norm.weight[i] : Wide{1};
      norm.output[start + i] = static_cast<T>((static_cast<Wide>(x[i]) - mean) * inverse * weight);
    }
  });
}

/// Computes the gradient of the weight, summed in the order of the rows:
///   weight_gradient[i] = Σ_r output_gradient[r, i] * (x[r, i] - mean_r) * inverse_r
/// It must run before x's gradient is written, because that may overwrite the output's gradient.
template <typename T>
void norm_weight_gradient_plain(const NormBackward<T>& norm, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, norm.width, 1, [&](int64_t i) {
    Wide total = 0;
    for (int64_t row = 0; row < norm.rows; ++row) {
      const int64_t offset = row * norm.width + i;
      const Wide mean = norm.mean != nullptr ? norm.mean[row] : Wide{0};
      const Wide normalised = (static_cast<Wide>(norm.x[offset]) - mean) * norm.inverse[row];
      total += static_cast<Wide>(norm.output_gradient[offset]) * normalised;
    }
    norm.weight_gradient[i] = total;
  });
}

/// Computes the gradients of x and the weight. mean_i(g) is subtracted for the layer norm only.
///   g = output_gradient[r, i] * weight[i], x̂ = (x[r, i] - mean_r) * inverse_r
///   x_gradient[r, i] = inverse_r * (g - mean_i(g) - x̂ * mean_i(g * x̂)) + sum_gradient[r, i]
template <typename T>
void norm_gradient_plain(const NormBackward<T>& norm, int threads) {
  using Wide = Compute<T>;
  if (norm.weight != nullptr) norm_weight_gradient_plain(norm, threads);
  parallel_each(threads, norm.rows, 1, [&](int64_t row) {
    const int64_t start = row * norm.width;
    const Wide mean = norm.mean != nullptr ? norm.mean[row] : Wide{0};
    const auto normalised = [&](int64_t i) {
      return (static_cast<Wide>(norm.x[start + i]) - mean) * norm.inverse[row];
    };
    const auto weighted_gradient = [&](int64_t i) {
      const Wide weight = norm.weight != nullptr ? norm.weight[i] : Wide{1};
      return static_cast<Wide>(norm.output_gradient[start + i]) * weight;
    };
    Wide gradient_mean = 0;
    Wide product_mean = 0;
    for (int64_t i = 0; i < norm.width; ++i) {
      gradient_mean += weighted_gradient(i);
      product_mean += weighted_gradient(i) * normalised(i);
    }
    gradient_mean = norm.mean != nullptr ? gradient_mean / static_cast<Wide>(norm.width) : 0;
    product_mean /= static_cast<Wide>(norm.width);
    for (int64_t i = 0; i < norm.width; ++i) {
      const Wide through_norm =
          norm.inverse[row] * (weighted_gradient(i) - gradient_mean - normalised(i) * product_mean);
      const Wide sum_gradient =
          norm.sum_gradient != nullptr ? static_cast<Wide>(norm.sum_gradient[start + i]) : 0;
      norm.x_gradient[start + i] = static_cast<T>(through_norm + sum_gradient);
    }
  });
}

}  // namespace tessera
