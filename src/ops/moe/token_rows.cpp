#include "ops/moe/token_rows.h"

#include <algorithm>

#include "ops/moe/token_rows_kernels.h"

namespace tessera {
namespace {

/// Writes result[h] = Σ_j weights[j] * rows[row_of_choice[j], h] for one token, in pieces of a row
/// that stay in the first-level cache.
template <typename In, typename Out>
void sum_token(const In* rows, const int32_t* row_of_choice, const Compute<In>* weights, int64_t k,
               int64_t width, Out* result) {
  using Wide = Compute<In>;
  constexpr int64_t kPiece = 1024;
  Wide sum[kPiece];
  for (int64_t at = 0; at < width; at += kPiece) {
    const int64_t count = std::min(kPiece, width - at);
    std::fill_n(sum, count, Wide{0});
    for (int64_t j = 0; j < k; ++j) {
      if (row_of_choice[j] < 0) continue;
      const In* row = rows + row_of_choice[j] * width + at;
      const Wide weight = weights == nullptr ? Wide{1} : weights[j];
#pragma omp simd
      for (int64_t h = 0; h < count; ++h) sum[h] += weight * static_cast<Wide>(row[h]);
    }
    // Without a simd pragma, which would keep the compiler from vectorising stores of bf16.
    for (int64_t h = 0; h < count; ++h) {
      result[at + h] = static_cast<Out>(static_cast<Compute<Out>>(sum[h]));
    }
  }
}

void sum_rows_on_device(Stream& stream, const Tensor& rows, const Tensor& output_indices,
                        const Tensor* weights, const Tensor& result) {
  for_vendor(stream, [&](auto vendor) {
    dispatch_device(rows.dtype(), [&](auto in) {
      dispatch_device(result.dtype(), [&](auto out) {
        RowSum<decltype(in), decltype(out)> sum{};
        sum.tokens = result.shape()[0];
        sum.k = output_indices.shape()[1];
        sum.width = result.shape()[1];
        sum.rows = rows.pointer<decltype(in)>();
        sum.row_of_choice = output_indices.pointer<int32_t>();
        if (weights != nullptr) sum.weights = weights->pointer<float>();
        sum.result = result.pointer<decltype(out)>();
        sum_rows_device<decltype(vendor)>(sum, stream);
      });
    });
  });
}

}  // namespace

void sum_rows(const Execution& execution, const Tensor& rows, const Tensor& output_indices,
              const Tensor* weights, const Tensor& result) {
  if (execution.stream != nullptr) {
    return sum_rows_on_device(*execution.stream, rows, output_indices, weights, result);
  }
  const int64_t k = output_indices.shape()[1];
  const int64_t width = result.shape()[1];
  dispatch_floating(rows.dtype(), [&](auto in) {
    dispatch_floating(result.dtype(), [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      using Wide = Compute<In>;
      const Wide* factors = weights == nullptr ? nullptr : weights->data<Wide>();
      parallel_ranges(execution.runtime.threads(), result.shape()[0], row_grain(k * width),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t t = begin; t < end; ++t) {
                          sum_token(rows.data<In>(), output_indices.data<int32_t>() + t * k,
                                    factors == nullptr ? nullptr : factors + t * k, k, width,
                                    result.data<Out>() + t * width);
                        }
                      });
    });
  });
}

int64_t rows_in_use(const Tensor& input_indices) {
  const std::span<const int32_t> token_of_row = input_indices.values<int32_t>();
  return std::ranges::partition_point(token_of_row, [](int32_t token) { return token >= 0; }) -
         token_of_row.begin();
}

}  // namespace tessera
