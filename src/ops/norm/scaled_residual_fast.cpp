#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/norm/norm_kernels.h"
#include "ops/norm/scaled_residual_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The forward kernel scales and normalises row by row. The gradient takes blocks of rows. Each
// block has its own column sums (ScaledSum), which are added up in the order of the blocks.

/// Computes the formula of scale_row_plain().
template <typename T>
void scale_row(const ScaledForward<T>& scaled, int64_t start) {
  const T* x = scaled.x + start;
  const float* stream = scaled.stream + start;
  const auto [x_scale, x_bias] = scaled.x_scaling;
  const auto [stream_scale, stream_bias] = scaled.stream_scaling;
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

/// Normalises a row of the sum. Not inlined, so that the same code normalises a kept sum.
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

/// The number of rows that are handled together. The column sums do not fit into the first-level
/// cache beside the rows, so they are read and written once for these rows.
constexpr int64_t kRowsTogether = 4;

/// Returns the mean of n g over a row (ScaledBackward defines n and g).
template <typename T>
float row_product_mean(const ScaledBackward<T>& scaled, int64_t row) {
  const float* sum = scaled.sum + row * scaled.width;
  const T* output_gradient = scaled.output_gradient + row * scaled.width;
  const float* weight = scaled.weight;
  const float inverse = scaled.inverse[row];
  return interleaved_sum<float>(scaled.width,
                                [=](int64_t i) {
                                  return static_cast<float>(output_gradient[i]) * weight[i] *
                                         (sum[i] * inverse);
                                }) /
         static_cast<float>(scaled.width);
}

/// Computes the gradients of kRows rows from `row` on, and adds to `sums` [kScaledSums, width].
template <int64_t kRows, bool kStream, bool kSumGradient, typename T>
void gradient_rows(const ScaledBackward<T>& scaled, int64_t row, float* sums) {
  const int64_t width = scaled.width;
  const int64_t start = row * width;
  float inverses[kRows], means[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    inverses[r] = scaled.inverse[row + r];
    means[r] = row_product_mean(scaled, row + r);
  }
  const float* sum = scaled.sum + start;
  const T* output_gradient = scaled.output_gradient + start;
  const T* x = scaled.x + start;
  const float* stream = kStream ? scaled.stream + start : nullptr;
  const float* sum_gradient = kSumGradient ? scaled.sum_gradient + start : nullptr;
  const float* weight = scaled.weight;
  const float* x_scale = scaled.x_scaling.scale;
  const float* stream_scale = scaled.stream_scaling.scale;
  T* x_gradient = scaled.x_gradient + start;
  float* stream_gradient = kStream ? scaled.stream_gradient + start : nullptr;
  float* totals = sums;
  float* totals_x = sums + width;
  float* totals_stream = sums + 2 * width;
  float* totals_weight = sums + 3 * width;
#pragma GCC ivdep
  for (int64_t i = 0; i < width; ++i) {
    float total = totals[i], total_x = totals_x[i], total_weight = totals_weight[i];
    float total_stream = kStream ? totals_stream[i] : 0;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t offset = r * width + i;
      const float normalised = sum[offset] * inverses[r];
      const auto output = static_cast<float>(output_gradient[offset]);
      total_weight += output * normalised;
      float gradient = inverses[r] * (output * weight[i] - normalised * means[r]);
      if constexpr (kSumGradient) gradient += sum_gradient[offset];
      total += gradient;
      total_x += gradient * static_cast<float>(x[offset]);
      x_gradient[offset] = static_cast<T>(gradient * x_scale[i]);
      if constexpr (kStream) {
        total_stream += gradient * stream[offset];
        stream_gradient[offset] = gradient * stream_scale[i];
      }
    }
    totals[i] = total;
    totals_x[i] = total_x;
    totals_weight[i] = total_weight;
    if constexpr (kStream) totals_stream[i] = total_stream;
  }
}

template <bool kStream, bool kSumGradient, typename T>
void gradient_blocks(const ScaledBackward<T>& scaled, int threads) {
  const int64_t block_rows = norm_block_rows(scaled.rows);
  const int64_t part_size = kScaledSums * scaled.width;
  const int64_t blocks = (scaled.rows + block_rows - 1) / block_rows;
  parallel_items(threads, blocks, [&](int64_t block, int) {
    float* sums = scaled.parts + block * part_size;
    std::fill_n(sums, part_size, 0.0f);
    const int64_t end = std::min(scaled.rows, (block + 1) * block_rows);
    int64_t row = block * block_rows;
    for (; row + kRowsTogether <= end; row += kRowsTogether) {
      gradient_rows<kRowsTogether, kStream, kSumGradient>(scaled, row, sums);
    }
    for (; row < end; ++row) gradient_rows<1, kStream, kSumGradient>(scaled, row, sums);
  });
  parallel_each(threads, scaled.width, row_grain(kScaledSums * blocks), [&](int64_t i) {
    float column[kScaledSums] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t s = 0; s < kScaledSums; ++s) {
        column[s] += scaled.parts[block * part_size + s * scaled.width + i];
      }
    }
    put_vector_gradients(scaled, i, column);
  });
}

}  // namespace

template <typename T>
void scaled_residual_fast(const ScaledForward<T>& scaled, int threads) {
  parallel_each(threads, scaled.rows, row_grain(scaled.width), [&](int64_t row) {
    if (scaled.x != nullptr) scale_row(scaled, row * scaled.width);
    normalise_sum(scaled, row);
  });
}

template <typename T>
void scaled_residual_gradient_fast(const ScaledBackward<T>& scaled, int threads) {
  const bool has_sum_gradient = scaled.sum_gradient != nullptr;
  if (scaled.stream != nullptr) {
    has_sum_gradient ? gradient_blocks<true, true>(scaled, threads)
                     : gradient_blocks<true, false>(scaled, threads);
  } else {
    has_sum_gradient ? gradient_blocks<false, true>(scaled, threads)
                     : gradient_blocks<false, false>(scaled, threads);
  }
}

template void scaled_residual_fast(const ScaledForward<float>&, int);
template void scaled_residual_fast(const ScaledForward<BFloat16>&, int);
template void scaled_residual_gradient_fast(const ScaledBackward<float>&, int);
template void scaled_residual_gradient_fast(const ScaledBackward<BFloat16>&, int);

}  // namespace tessera
