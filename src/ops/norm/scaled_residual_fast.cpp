#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/norm/norm_kernels.h"
#include "ops/norm/scaled_residual_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

template <typename T>
void scale_row(const ScaledForward<T>& scaled, int64_t start) {
  const T* x = scaled.x + start;
  const float* stream = scaled.stream + start;
  const auto [x_scale, x_bias] = scaled.of_x;
  const auto [stream_scale, stream_bias] = scaled.of_stream;
  float* sum = scaled.sum + start;
  if (scaled.stream == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < scaled.width; ++i) {
      sum[i] = (static_cast<float>(x[i]) + x_bias[i]) * x_scale[i];
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < scaled.width; ++i) {
    sum[i] = (static_cast<float>(x[i]) + x_bias[i]) * x_scale[i] +
             (stream[i] + stream_bias[i]) * stream_scale[i];
  }
}

/// It is not inlined, so that a kept stream is normalised by the same code.
template <typename T>
[[gnu::noinline]] void normalise_sum(const ScaledForward<T>& scaled, int64_t row) {
  const float* sum = scaled.sum + row * scaled.width;
  T* output = scaled.output + row * scaled.width;
  const float squares =
      interleaved_sum<float>(scaled.width, [=](int64_t i) { return sum[i] * sum[i]; });
  const float mean = squares / static_cast<float>(scaled.width);
  const float inverse = 1.0f / std::sqrt(mean + static_cast<float>(scaled.epsilon));
  scaled.inverse[row] = inverse;
  const float* weight = scaled.weight;
#pragma GCC ivdep
  for (int64_t i = 0; i < scaled.width; ++i) {
    output[i] = static_cast<T>(sum[i] * inverse * weight[i]);
  }
}

/// A row's part of all gradients. `sums` are the column sums of its block of rows.
template <bool kStream, bool kOfSum, typename T>
void gradient_row(const ScaledBackward<T>& scaled, int64_t row, float* sums) {
  const int64_t width = scaled.width;
  const int64_t start = row * width;
  const float inverse = scaled.inverse[row];
  const float* sum = scaled.sum + start;
  const T* of_output = scaled.of_output + start;
  const float* weight = scaled.weight;
  float* of_weight = sums + 3 * width;
  const float product_mean =
      interleaved_sum<float>(width,
                             [=](int64_t i) {
                               const float product =
                                   static_cast<float>(of_output[i]) * sum[i] * inverse;
                               of_weight[i] += product;
                               return product * weight[i];
                             }) /
      static_cast<float>(width);
  const T* x = scaled.x + start;
  const float* stream = kStream ? scaled.stream + start : nullptr;
  const float* of_sum = kOfSum ? scaled.of_sum + start : nullptr;
  const float* x_scale = scaled.of_x.scale;
  const float* stream_scale = scaled.of_stream.scale;
  T* x_gradient = scaled.x_gradient + start;
  float* stream_gradient = kStream ? scaled.stream_gradient + start : nullptr;
  float* total = sums;
  float* total_x = sums + width;
  float* total_stream = sums + 2 * width;
#pragma GCC ivdep
  for (int64_t i = 0; i < width; ++i) {
    const float gradient = static_cast<float>(of_output[i]) * weight[i];
    float of = inverse * (gradient - sum[i] * inverse * product_mean);
    if constexpr (kOfSum) of += of_sum[i];
    total[i] += of;
    total_x[i] += of * static_cast<float>(x[i]);
    x_gradient[i] = static_cast<T>(of * x_scale[i]);
    if constexpr (kStream) {
      total_stream[i] += of * stream[i];
      stream_gradient[i] = of * stream_scale[i];
    }
  }
}

template <bool kStream, bool kOfSum, typename T>
void gradient_blocks(const ScaledBackward<T>& scaled, int threads) {
  const int64_t block_rows = norm_block_rows(scaled.rows);
  const int64_t size = kScaledSums * scaled.width;
  const int64_t blocks = (scaled.rows + block_rows - 1) / block_rows;
  parallel_items(threads, blocks, [&](int64_t block, int) {
    float* sums = scaled.parts + block * size;
    std::fill_n(sums, size, 0.0f);
    const int64_t end = std::min(scaled.rows, (block + 1) * block_rows);
    for (int64_t row = block * block_rows; row < end; ++row) {
      gradient_row<kStream, kOfSum>(scaled, row, sums);
    }
  });
  parallel_ranges(threads, scaled.width, row_grain(kScaledSums * blocks),
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t i = begin; i < end; ++i) {
                      float column[kScaledSums] = {};
                      for (int64_t block = 0; block < blocks; ++block) {
                        for (int64_t s = 0; s < kScaledSums; ++s) {
                          column[s] += scaled.parts[block * size + s * scaled.width + i];
                        }
                      }
                      put_vector_gradients(scaled, i, column);
                    }
                  });
}

}  // namespace

template <typename T>
void scaled_residual_fast(const ScaledForward<T>& scaled, int threads) {
  parallel_ranges(threads, scaled.rows, row_grain(scaled.width),
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t row = begin; row < end; ++row) {
                      if (scaled.x != nullptr) scale_row(scaled, row * scaled.width);
                      normalise_sum(scaled, row);
                    }
                  });
}

template <typename T>
void scaled_residual_gradient_fast(const ScaledBackward<T>& scaled, int threads) {
  const bool of_sum = scaled.of_sum != nullptr;
  if (scaled.stream != nullptr) {
    of_sum ? gradient_blocks<true, true>(scaled, threads)
           : gradient_blocks<true, false>(scaled, threads);
  } else {
    of_sum ? gradient_blocks<false, true>(scaled, threads)
           : gradient_blocks<false, false>(scaled, threads);
  }
}

template void scaled_residual_fast(const ScaledForward<float>&, int);
template void scaled_residual_fast(const ScaledForward<BFloat16>&, int);
template void scaled_residual_gradient_fast(const ScaledBackward<float>&, int);
template void scaled_residual_gradient_fast(const ScaledBackward<BFloat16>&, int);

}  // namespace tessera
