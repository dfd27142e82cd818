#pragma once

#include <algorithm>
#include <vector>

#include "ops/support.h"

namespace tessera {

// The plain kernels of the grouped linear map and its gradients, which define the results. Expert e
// has the rows from offsets[e] to offsets[e + 1]. x is [rows, in], y is [rows, out] and a weight is
// [experts, out, in]. A gradient has the shape of its tensor. Sums are in the accumulation type.

/// Computes y_ro = Σ_i x_ri w_eoi for the rows r of each expert e.
template <typename T>
void grouped_linear_plain(const Runtime& runtime, const Tensor& x, const Tensor& weight,
                          const Tensor& expert_offsets, const Tensor& y) {
  using Wide = Compute<T>;
  const int64_t out = weight.shape()[1], in = weight.shape()[2];
  const int32_t* offsets = expert_offsets.data<int32_t>();
  const int64_t rows = offsets[weight.shape()[0]];
  parallel_ranges(runtime.threads(), rows, 1, [&](int64_t begin, int64_t end, int) {
    int64_t expert = 0;
    for (int64_t r = begin; r < end; ++r) {
      while (r >= offsets[expert + 1]) ++expert;
      T* result = y.data<T>() + r * out;
      for (int64_t o = 0; o < out; ++o) {
        Wide sum = 0;
        for (int64_t i = 0; i < in; ++i) {
          sum += static_cast<Wide>(x.data<T>()[r * in + i]) *
                 static_cast<Wide>(weight.data<T>()[(expert * out + o) * in + i]);
        }
        result[o] = static_cast<T>(sum);
      }
    }
  });
}

/// Computes x_gradient_ri = Σ_n Σ_o y_gradient^n_ro w^n_eoi. Several weights n (gate and up) have
/// multiplied the same x, so the products of their gradients are summed.
template <typename T>
void grouped_linear_input_gradient_plain(const Runtime& runtime,
                                         std::span<const Tensor> y_gradients,
                                         std::span<const Tensor> weights,
                                         const Tensor& expert_offsets, const Tensor& x_gradient) {
  using Wide = Compute<T>;
  const int64_t experts = weights[0].shape()[0], in = weights[0].shape()[2];
  const int32_t* offsets = expert_offsets.data<int32_t>();
  parallel_ranges(runtime.threads(), offsets[experts], 1, [&](int64_t begin, int64_t end, int) {
    std::vector<Wide> sums(static_cast<size_t>(in));
    int64_t expert = 0;
    for (int64_t r = begin; r < end; ++r) {
      while (r >= offsets[expert + 1]) ++expert;
      std::fill(sums.begin(), sums.end(), Wide{0});
      for (size_t n = 0; n < weights.size(); ++n) {
        const int64_t out = weights[n].shape()[1];
        for (int64_t o = 0; o < out; ++o) {
          const auto gradient = static_cast<Wide>(y_gradients[n].data<T>()[r * out + o]);
          const T* row = weights[n].data<T>() + (expert * out + o) * in;
          for (int64_t i = 0; i < in; ++i) {
            sums[static_cast<size_t>(i)] += gradient * static_cast<Wide>(row[i]);
          }
        }
      }
      for (int64_t i = 0; i < in; ++i) {
        x_gradient.data<T>()[r * in + i] = static_cast<T>(sums[static_cast<size_t>(i)]);
      }
    }
  });
}

/// Adds Σ_r y_gradient_ro x_ri, over the rows r of each expert e, to weight_gradient_eoi.
template <typename T>
void grouped_linear_weight_gradient_plain(const Runtime& runtime, const Tensor& x,
                                          const Tensor& y_gradient, const Tensor& expert_offsets,
                                          const Tensor& weight_gradient) {
  using Wide = Compute<T>;
  const int64_t out = weight_gradient.shape()[1], in = weight_gradient.shape()[2];
  const int32_t* offsets = expert_offsets.data<int32_t>();
  parallel_each(runtime.threads(), weight_gradient.shape()[0] * out, 1, [&](int64_t weight_row) {
    const int64_t expert = weight_row / out, o = weight_row % out;
    Wide* result = weight_gradient.data<Wide>() + weight_row * in;
    for (int64_t r = offsets[expert]; r < offsets[expert + 1]; ++r) {
      const auto factor = static_cast<Wide>(y_gradient.data<T>()[r * out + o]);
      for (int64_t i = 0; i < in; ++i) {
        result[i] += factor * static_cast<Wide>(x.data<T>()[r * in + i]);
      }
    }
  });
}

}  // namespace tessera
