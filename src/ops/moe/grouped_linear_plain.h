#pragma once

#include <algorithm>
#include <vector>

#include "ops/support.h"

namespace tessera {

// The definition of the grouped linear map and its gradients: loops over the rows of each expert.
// Expert e has the rows from offsets[e] to offsets[e + 1]. x is [rows, in], y and its gradient are
// [rows, out], weights are [experts, out, in].

/// Computes y_ro = Σ_i x_ri w_eoi for the rows r of each expert e.
template <typename T>
void grouped_linear_plain(const Runtime& runtime, const Tensor& x, const Tensor& weight,
                          const Tensor& offsets, const Tensor& y) {
  using Wide = Compute<T>;
  const int64_t out = weight.shape()[1], in = weight.shape()[2];
  const int32_t* bounds = offsets.data<int32_t>();
  const int64_t rows = bounds[weight.shape()[0]];
  parallel_ranges(runtime.threads(), rows, 1, [&](int64_t begin, int64_t end, int) {
    int64_t expert = 0;
    for (int64_t r = begin; r < end; ++r) {
      while (r >= bounds[expert + 1]) ++expert;
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

/// Computes dx_ri = Σ_n Σ_o dy^n_ro w^n_eoi over pairs n of a gradient and a weight.
template <typename T>
void grouped_linear_input_gradient_plain(const Runtime& runtime, std::span<const Tensor> gradients,
                                         std::span<const Tensor> weights, const Tensor& offsets,
                                         const Tensor& dx) {
  using Wide = Compute<T>;
  const int64_t experts = weights[0].shape()[0], in = weights[0].shape()[2];
  const int32_t* bounds = offsets.data<int32_t>();
  parallel_ranges(runtime.threads(), bounds[experts], 1, [&](int64_t begin, int64_t end, int) {
    std::vector<Wide> sums(static_cast<size_t>(in));
    int64_t expert = 0;
    for (int64_t r = begin; r < end; ++r) {
      while (r >= bounds[expert + 1]) ++expert;
      std::fill(sums.begin(), sums.end(), Wide{0});
      for (size_t n = 0; n < weights.size(); ++n) {
        const int64_t out = weights[n].shape()[1];
        for (int64_t o = 0; o < out; ++o) {
          const auto gradient = static_cast<Wide>(gradients[n].data<T>()[r * out + o]);
          const T* row = weights[n].data<T>() + (expert * out + o) * in;
          for (int64_t i = 0; i < in; ++i) {
            sums[static_cast<size_t>(i)] += gradient * static_cast<Wide>(row[i]);
          }
        }
      }
      for (int64_t i = 0; i < in; ++i) {
        dx.data<T>()[r * in + i] = static_cast<T>(sums[static_cast<size_t>(i)]);
      }
    }
  });
}

/// Computes dw_eoi += Σ_r dy_ro x_ri over the rows r of each expert e.
template <typename T>
void grouped_linear_weight_gradient_plain(const Runtime& runtime, const Tensor& x,
                                          const Tensor& gradient, const Tensor& offsets,
                                          const Tensor& dw) {
  using Wide = Compute<T>;
  const int64_t out = dw.shape()[1], in = dw.shape()[2];
  const int32_t* bounds = offsets.data<int32_t>();
  parallel_ranges(runtime.threads(), dw.shape()[0] * out, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t expert = at / out, o = at % out;
      Wide* result = dw.data<Wide>() + at * in;
      for (int64_t r = bounds[expert]; r < bounds[expert + 1]; ++r) {
        const auto factor = static_cast<Wide>(gradient.data<T>()[r * out + o]);
        for (int64_t i = 0; i < in; ++i) {
          result[i] += factor * static_cast<Wide>(x.data<T>()[r * in + i]);
        }
      }
    }
  });
}

}  // namespace tessera
