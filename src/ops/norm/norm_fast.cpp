#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/norm/norm_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The formulas are those of norm_plain(). Rounding to bf16 vectorises under "ivdep" but not under
// "omp simd", which keeps each rounded object in memory.

template <typename T>
void add_row(const T* x, const T* residual, T* sum, int64_t width) {
#pragma GCC ivdep
  for (int64_t i = 0; i < width; ++i) {
    sum[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));
  }
}

template <typename T>
float mean_of_row(const T* x, int64_t width) {
  return interleaved_sum<float>(width, [=](int64_t i) { return static_cast<float>(x[i]); }) /
         static_cast<float>(width);
}

template <typename T>
float mean_square_of_row(const T* x, float mean, int64_t width) {
  const float total = interleaved_sum<float>(width, [=](int64_t i) {
    const float centred = static_cast<float>(x[i]) - mean;
    return centred * centred;
  });
  return total / static_cast<float>(width);
}

template <typename T>
void write_row(const T* x, float mean, float inverse, const float* weight, T* output,
               int64_t width) {
  if (weight == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < width; ++i) {
      output[i] = static_cast<T>((static_cast<float>(x[i]) - mean) * inverse);
    }
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < width; ++i) {
      output[i] = static_cast<T>((static_cast<float>(x[i]) - mean) * inverse * weight[i]);
    }
  }
}

/// Normalises rows [begin, end) of `values`, which is x or the sum. It is not inlined, so the norm
/// with a residual and the norm of its kept sum run the same code and give the same bits.
template <typename T>
[[gnu::noinline]] void normalise_rows(const NormForward<T>& norm, const T* values, int64_t begin,
                                      int64_t end) {
  const int64_t width = norm.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = values + row * width;
    const float mean = norm.mean != nullptr ? mean_of_row(x, width) : 0.0f;
    if (norm.mean != nullptr) norm.mean[row] = mean;
    const float square = mean_square_of_row(x, mean, width);
    const float inverse = 1.0f / std::sqrt(square + static_cast<float>(norm.epsilon));
    norm.inverse[row] = inverse;
    write_row(x, mean, inverse, norm.weight, norm.output + row * width, width);
  }
}

}  // namespace

template <typename T>
void norm_fast(const NormForward<T>& norm, int threads) {
  const int64_t width = norm.width;
  parallel_ranges(threads, norm.rows, row_grain(width), [&](int64_t begin, int64_t end, int) {
    if (norm.residual == nullptr) {
      normalise_rows(norm, norm.x, begin, end);
      return;
    }
    // Row by row, so the sum is still in the first-level cache when it is normalised.
    for (int64_t row = begin; row < end; ++row) {
      const int64_t start = row * width;
      add_row(norm.x + start, norm.residual + start, norm.sum + start, width);
      normalise_rows<T>(norm, norm.sum, row, row + 1);
    }
  });
}

template void norm_fast(const NormForward<float>&, int);
template void norm_fast(const NormForward<BFloat16>&, int);

}  // namespace tessera
