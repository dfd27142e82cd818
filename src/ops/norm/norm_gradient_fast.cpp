#include "base/interleaved_sum.h"
#include "ops/norm/norm_kernels.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

/// One row of a NormBackward. In the functions below, kWeight is true if there is a weight, and
/// kSum is true if there is a gradient of the sum.
template <typename T>
struct Row {
  const T* x;
  const T* output_gradient;
  const T* sum_gradient;
  T* x_gradient;
  float mean;
  float inverse;
  int64_t width;

  float normalised(int64_t i) const { return (static_cast<float>(x[i]) - mean) * inverse; }
};

/// Adds the row's part to the weight's gradient and returns Σ output_gradient · weight · x̂.
template <typename T>
float product_sum(const Row<T>& row, const float* weight, float* weight_gradient) {
  return interleaved_sum<float>(row.width, [=](int64_t i) {
    const float product = static_cast<float>(row.output_gradient[i]) * row.normalised(i);
    weight_gradient[i] += product;
    return product * weight[i];
  });
}

template <typename T>
float product_sum(const Row<T>& row) {
  return interleaved_sum<float>(row.width, [=](int64_t i) {
    return static_cast<float>(row.output_gradient[i]) * row.normalised(i);
  });
}

template <bool kWeight, typename T>
float gradient_sum(const Row<T>& row, const float* weight) {
  return interleaved_sum<float>(row.width, [=](int64_t i) {
    const auto gradient = static_cast<float>(row.output_gradient[i]);
    return kWeight ? gradient * weight[i] : gradient;
  });
}

template <bool kWeight, bool kSum, typename T>
void write_row(const Row<T>& row, const float* weight, float gradient_mean, float product_mean) {
  const T* x = row.x;
  const T* output_gradient = row.output_gradient;
  const T* sum_gradient = row.sum_gradient;
  T* x_gradient = row.x_gradient;
  const float mean = row.mean;
  const float inverse = row.inverse;
#pragma GCC ivdep
  for (int64_t i = 0; i < row.width; ++i) {
    auto gradient = static_cast<float>(output_gradient[i]);
    if constexpr (kWeight) gradient *= weight[i];
    const float normalised = (static_cast<float>(x[i]) - mean) * inverse;
    float result = inverse * (gradient - gradient_mean - normalised * product_mean);
    if constexpr (kSum) result += static_cast<float>(sum_gradient[i]);
    x_gradient[i] = static_cast<T>(result);
  }
}

/// Writes x's gradient for rows [begin, end), and adds their terms to `weight_gradient`.
template <bool kWeight, bool kSum, typename T>
[[gnu::noinline]] void gradient_rows(const NormBackward<T>& norm, int64_t begin, int64_t end,
                                     float* weight_gradient) {
  const float scale = 1.0f / static_cast<float>(norm.width);
  for (int64_t index = begin; index < end; ++index) {
    const int64_t start = index * norm.width;
    const Row<T> row{norm.x + start,
                     norm.output_gradient + start,
                     kSum ? norm.sum_gradient + start : nullptr,
                     norm.x_gradient + start,
                     norm.mean != nullptr ? norm.mean[index] : 0.0f,
                     norm.inverse[index],
                     norm.width};
    const float gradient_mean =
        norm.mean != nullptr ? scale * gradient_sum<kWeight>(row, norm.weight) : 0.0f;
    float product_mean = 0;
    if constexpr (kWeight) {
      product_mean = scale * product_sum(row, norm.weight, weight_gradient);
    } else {
      product_mean = scale * product_sum(row);
    }
    write_row<kWeight, kSum>(row, norm.weight, gradient_mean, product_mean);
  }
}

template <bool kSum, typename T>
void gradient_with_weight(const NormBackward<T>& norm, int threads) {
  const int64_t block_rows = norm_block_rows(norm.rows);
  const int64_t blocks = (norm.rows + block_rows - 1) / block_rows;
  parallel_items(threads, blocks, [&](int64_t block, int) {
    float* partial = norm.partial + block * norm.width;
    std::fill_n(partial, norm.width, 0.0f);
    const int64_t end = std::min(norm.rows, (block + 1) * block_rows);
    gradient_rows<true, kSum>(norm, block * block_rows, end, partial);
  });
  add_weight_parts({.count = blocks,
                    .width = norm.width,
                    .parts = norm.partial,
                    .gradients = {norm.weight_gradient},
                    .sizes = {norm.width}},
                   threads);
}

template <bool kSum, typename T>
void gradient_without_weight(const NormBackward<T>& norm, int threads) {
  parallel_ranges(threads, norm.rows, row_grain(norm.width), [&](int64_t begin, int64_t end, int) {
    gradient_rows<false, kSum>(norm, begin, end, nullptr);
  });
}

}  // namespace

template <typename T>
void norm_gradient_fast(const NormBackward<T>& norm, int threads) {
  const bool has_sum_gradient = norm.sum_gradient != nullptr;
  if (norm.weight != nullptr) {
    has_sum_gradient ? gradient_with_weight<true>(norm, threads)
                     : gradient_with_weight<false>(norm, threads);
  } else {
    has_sum_gradient ? gradient_without_weight<true>(norm, threads)
                     : gradient_without_weight<false>(norm, threads);
  }
}

template void norm_gradient_fast(const NormBackward<float>&, int);
template void norm_gradient_fast(const NormBackward<BFloat16>&, int);

}  // namespace tessera
