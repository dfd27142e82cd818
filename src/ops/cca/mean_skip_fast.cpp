#include <algorithm>
#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/cca/mean_skip_kernels.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

// Heads are handled in groups: a key head and the query heads that share it. For each head, a row
// of scratch memory gets the sum s = convolved + bias + mean (mean_skip.h). The forward kernel
// normalises the sum, and the backward kernel replaces it by its gradient.

/// The rows of one token and one group of heads, which share a key head, and their biases.
template <typename T>
struct SkipRows {
  SkipRows(const MeanSkipOperands<T>& operands, int64_t token, int64_t group)
      : head_dim(operands.head_dim),
        heads(operands.heads),
        key_row((token * operands.groups + group) * operands.head_dim),
        query_row(key_row * operands.heads),
        projected_query(operands.projected_query + query_row),
        projected_key(operands.projected_key + key_row),
        convolved_query(operands.convolved_query + query_row),
        convolved_key(operands.convolved_key + key_row),
        query_bias(operands.query_bias + group * operands.heads * operands.head_dim),
        key_bias(operands.key_bias + group * operands.head_dim) {}

  int64_t head_dim;
  int64_t heads;
  int64_t key_row;    // offset of the key head's row, in elements
  int64_t query_row;  // offset of the rows of queries
  const T* projected_query;
  const T* projected_key;
  const T* convolved_query;
  const T* convolved_key;
  const float* query_bias;
  const float* key_bias;
};

/// Writes sum = convolved + bias + (projected query + projected key) / 2 of a query head.
template <typename T>
[[gnu::noinline]] void sum_of_query(const SkipRows<T>& rows, int64_t head, float* sum) {
  const int64_t start = head * rows.head_dim;
  const T* convolved = rows.convolved_query + start;
  const T* query = rows.projected_query + start;
  const T* key = rows.projected_key;
  const float* bias = rows.query_bias + start;
#pragma GCC ivdep
  for (int64_t c = 0; c < rows.head_dim; ++c) {
    sum[c] = static_cast<float>(convolved[c]) + bias[c] +
             0.5f * (static_cast<float>(query[c]) + static_cast<float>(key[c]));
  }
}

/// Writes sum = convolved + bias + (mean of projected queries + projected key) / 2 of the key head.
template <typename T>
[[gnu::noinline]] void sum_of_key(const SkipRows<T>& rows, float* sum) {
  std::fill_n(sum, rows.head_dim, 0.0f);
  for (int64_t head = 0; head < rows.heads; ++head) {
    const T* query = rows.projected_query + head * rows.head_dim;
#pragma GCC ivdep
    for (int64_t c = 0; c < rows.head_dim; ++c) sum[c] += static_cast<float>(query[c]);
  }
  const float share = 1.0f / static_cast<float>(rows.heads);
#pragma GCC ivdep
  for (int64_t c = 0; c < rows.head_dim; ++c) {
    sum[c] = static_cast<float>(rows.convolved_key[c]) + rows.key_bias[c] +
             0.5f * (sum[c] * share + static_cast<float>(rows.projected_key[c]));
  }
}

/// Returns 1 / sqrt(Σ sum² + epsilon).
float inverse_skip_norm(const float* sum, int64_t head_dim, double epsilon) {
  const float squares =
      interleaved_sum<float>(head_dim, [=](int64_t c) { return sum[c] * sum[c]; });
  return 1.0f / std::sqrt(squares + static_cast<float>(epsilon));
}

template <typename T>
void scale_row(const float* sum, float factor, T* row, int64_t head_dim) {
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) row[c] = static_cast<T>(factor * sum[c]);
}

/// The factors of a head's norm: temperature · root · s / sqrt(Σ s² + epsilon).
struct SkipScale {
  float root;             // √head_dim
  float temperature = 1;  // 1 for queries
  double epsilon;
};

/// Replaces a sum by its gradient (NormGradientFactors) and returns the temperature's gradient.
template <typename T>
[[gnu::noinline]] float replace_by_gradient(const SkipScale& scale, const T* output_gradient,
                                            float* sum, int64_t head_dim) {
  const float inverse = inverse_skip_norm(sum, head_dim, scale.epsilon);
  const float products = interleaved_sum<float>(
      head_dim, [=](int64_t c) { return sum[c] * static_cast<float>(output_gradient[c]); });
  const float factor = scale.temperature * scale.root * inverse;
  const float projection = inverse * inverse * products;
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) {
    sum[c] = factor * (static_cast<float>(output_gradient[c]) - sum[c] * projection);
  }
  return scale.root * inverse * products;
}

/// The addresses of one group's gradients in a part (see MeanSkipBackward::parts).
struct SkipPart {
  template <typename T>
  SkipPart(const MeanSkipBackward<T>& skip, int64_t part, int64_t group) {
    const MeanSkipOperands<T>& operands = skip.operands;
    float* const begin = skip.parts + part * skip.part_width();
    query_bias_gradient = begin + group * operands.heads * operands.head_dim;
    key_bias_gradient = begin + operands.query_channels() + group * operands.head_dim;
    temperature_gradient = begin + operands.query_channels() + operands.key_channels() + group;
  }
  float* query_bias_gradient;
  float* key_bias_gradient;
  float* temperature_gradient;
};

/// Writes the gradients of one query head, and adds the gradient of the head's sum to `total`.
template <typename T>
[[gnu::noinline]] void write_query_gradients(const MeanSkipBackward<T>& skip, int64_t start,
                                             const float* sum_gradient,
                                             const float* key_sum_gradient, float* bias_gradient,
                                             float* total) {
  const MeanSkipOperands<T>& operands = skip.operands;
  const float share = 0.5f / static_cast<float>(operands.heads);
  T* convolved_gradient = skip.convolved_query_gradient + start;
  T* projected_gradient = skip.projected_query_gradient + start;
#pragma GCC ivdep
  for (int64_t c = 0; c < operands.head_dim; ++c) {
    bias_gradient[c] += sum_gradient[c];
    total[c] += sum_gradient[c];
    convolved_gradient[c] = static_cast<T>(sum_gradient[c]);
    projected_gradient[c] = static_cast<T>(0.5f * sum_gradient[c] + share * key_sum_gradient[c]);
  }
}

/// Writes the gradients of one token and group, and adds to those of the biases and the temperature
/// in `part`. `scratch` is [3, head_dim].
template <typename T>
void write_group_gradients(const MeanSkipBackward<T>& skip, const SkipPart& part, int64_t token,
                           int64_t group, float* scratch) {
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t head_dim = operands.head_dim;
  const SkipRows<T> rows(operands, token, group);
  const float root = std::sqrt(static_cast<float>(head_dim));
  float* const key_sum_gradient = scratch;
  float* const sum_gradient = scratch + head_dim;
  float* const total = scratch + 2 * head_dim;  // of sum_gradient over the query heads

  sum_of_key(rows, key_sum_gradient);
  *part.temperature_gradient += replace_by_gradient<T>(
      {.root = root, .temperature = operands.temperature[group], .epsilon = operands.epsilon},
      skip.key_gradient + rows.key_row, key_sum_gradient, head_dim);
  std::fill_n(total, head_dim, 0.0f);
  for (int64_t head = 0; head < operands.heads; ++head) {
    const int64_t start = rows.query_row + head * head_dim;
    sum_of_query(rows, head, sum_gradient);
    replace_by_gradient<T>({.root = root, .epsilon = operands.epsilon}, skip.query_gradient + start,
                           sum_gradient, head_dim);
    write_query_gradients(skip, start, sum_gradient, key_sum_gradient,
                          part.query_bias_gradient + head * head_dim, total);
  }
  T* convolved_gradient = skip.convolved_key_gradient + rows.key_row;
  T* projected_gradient = skip.projected_key_gradient + rows.key_row;
  float* bias_gradient = part.key_bias_gradient;
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) {
    bias_gradient[c] += key_sum_gradient[c];
    convolved_gradient[c] = static_cast<T>(key_sum_gradient[c]);
    projected_gradient[c] = static_cast<T>(0.5f * (total[c] + key_sum_gradient[c]));
  }
}

}  // namespace

template <typename T>
void mean_skip_fast(const MeanSkipForward<T>& skip, int threads) {
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t head_dim = operands.head_dim;
  const float root = std::sqrt(static_cast<float>(head_dim));
  parallel_ranges(
      threads, operands.tokens * operands.groups, row_grain((operands.heads + 1) * head_dim),
      [&](int64_t begin, int64_t end, int thread) {
        float* const key_sum = skip.scratch + thread * 2 * head_dim;
        float* const sum = key_sum + head_dim;
        for (int64_t item = begin; item < end; ++item) {
          const int64_t group = item % operands.groups;
          const SkipRows<T> rows(operands, item / operands.groups, group);
          sum_of_key(rows, key_sum);
          const float factor = operands.temperature[group] * root;
          scale_row(key_sum, factor * inverse_skip_norm(key_sum, head_dim, operands.epsilon),
                    skip.key + rows.key_row, head_dim);
          for (int64_t head = 0; head < operands.heads; ++head) {
            sum_of_query(rows, head, sum);
            scale_row(sum, root * inverse_skip_norm(sum, head_dim, operands.epsilon),
                      skip.query + rows.query_row + head * head_dim, head_dim);
          }
        }
      });
}

template <typename T>
void mean_skip_gradient_fast(const MeanSkipBackward<T>& skip, int64_t parts, int threads) {
  const MeanSkipOperands<T>& operands = skip.operands;
  parallel_items(threads, parts, [&](int64_t part, int thread) {
    float* const scratch = skip.scratch + thread * 3 * operands.head_dim;
    std::fill_n(skip.parts + part * skip.part_width(), skip.part_width(), 0.0f);
    const int64_t end = operands.tokens * (part + 1) / parts;
    for (int64_t token = operands.tokens * part / parts; token < end; ++token) {
      for (int64_t group = 0; group < operands.groups; ++group) {
        write_group_gradients(skip, SkipPart(skip, part, group), token, group, scratch);
      }
    }
  });
  add_weight_parts(
      {.count = parts,
       .width = skip.part_width(),
       .parts = skip.parts,
       .gradients = {skip.query_bias_gradient, skip.key_bias_gradient, skip.temperature_gradient},
       .sizes = {operands.query_channels(), operands.key_channels(), operands.groups}},
      threads);
}

template void mean_skip_fast(const MeanSkipForward<float>&, int);
template void mean_skip_fast(const MeanSkipForward<BFloat16>&, int);
template void mean_skip_gradient_fast(const MeanSkipBackward<float>&, int64_t, int);
template void mean_skip_gradient_fast(const MeanSkipBackward<BFloat16>&, int64_t, int);

}  // namespace tessera
