#include <algorithm>
#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/cca/mean_skip_kernels.h"
#include "ops/cca/weight_parts.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The rows of one token's heads that share a key head, and the rows of their weights.
template <typename T>
struct SkipRows {
  SkipRows(const MeanSkipOperands<T>& of, int64_t token, int64_t group)
      : head_dim(of.head_dim),
        heads(of.heads),
        key_start((token * of.groups + group) * of.head_dim),
        query_start(key_start * of.heads),
        projected_query(of.projected_query + query_start),
        projected_key(of.projected_key + key_start),
        convolved_query(of.convolved_query + query_start),
        convolved_key(of.convolved_key + key_start),
        query_bias(of.query_bias + group * of.heads * of.head_dim),
        key_bias(of.key_bias + group * of.head_dim) {}

  int64_t head_dim;
  int64_t heads;
  int64_t key_start;    // of the rows of keys, in elements
  int64_t query_start;  // of the rows of queries
  const T* projected_query;
  const T* projected_key;
  const T* convolved_query;
  const T* convolved_key;
  const float* query_bias;
  const float* key_bias;
};

/// sum = convolved + bias + half of query and key.
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

/// The same of the key, whose mean is that over the group's queries.
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

float inverse_of(const float* sum, int64_t head_dim, double epsilon) {
  const float squares =
      interleaved_sum<float>(head_dim, [=](int64_t c) { return sum[c] * sum[c]; });
  return 1.0f / std::sqrt(squares + static_cast<float>(epsilon));
}

template <typename T>
void scale_row(const float* sum, float factor, T* row, int64_t head_dim) {
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) row[c] = static_cast<T>(factor * sum[c]);
}

/// What scales a sum's gradient, and the root of the head dim.
struct SkipScale {
  float root;
  float temperature = 1;
  double epsilon;
};

/// Replaces a sum by its gradient. Returns the gradient of the temperature.
template <typename T>
[[gnu::noinline]] float replace_by_gradient(const SkipScale& scale, const T* of_output, float* sum,
                                            int64_t head_dim) {
  const float inverse = inverse_of(sum, head_dim, scale.epsilon);
  const float products = interleaved_sum<float>(
      head_dim, [=](int64_t c) { return sum[c] * static_cast<float>(of_output[c]); });
  const float factor = scale.temperature * scale.root * inverse;
  const float towards = inverse * inverse * products;
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) {
    sum[c] = factor * (static_cast<float>(of_output[c]) - sum[c] * towards);
  }
  return scale.root * inverse * products;
}

/// Where a part of the sums over tokens is, for one group.
struct SkipPart {
  template <typename T>
  SkipPart(const MeanSkipBackward<T>& skip, int64_t part, int64_t group) {
    const MeanSkipOperands<T>& of = skip.operands;
    float* const begin = skip.parts + part * skip.part_width();
    of_query_bias = begin + group * of.heads * of.head_dim;
    of_key_bias = begin + of.query_channels() + group * of.head_dim;
    of_temperature = begin + of.query_channels() + of.key_channels() + group;
  }
  float* of_query_bias;
  float* of_key_bias;
  float* of_temperature;
};

/// The gradients of one query head, given that of its sum. Adds it to `total`, over the heads.
template <typename T>
[[gnu::noinline]] void write_query_gradients(const MeanSkipBackward<T>& skip, int64_t start,
                                             const float* of_sum, const float* of_key_sum,
                                             float* of_bias, float* total) {
  const MeanSkipOperands<T>& of = skip.operands;
  const float share = 0.5f / static_cast<float>(of.heads);
  T* of_convolved = skip.of_convolved_query + start;
  T* of_projected = skip.of_projected_query + start;
#pragma GCC ivdep
  for (int64_t c = 0; c < of.head_dim; ++c) {
    of_bias[c] += of_sum[c];
    total[c] += of_sum[c];
    of_convolved[c] = static_cast<T>(of_sum[c]);
    of_projected[c] = static_cast<T>(0.5f * of_sum[c] + share * of_key_sum[c]);
  }
}

/// The gradients of one token's heads that share a key head. `scratch` is [3, head_dim].
template <typename T>
void gradients_of_group(const MeanSkipBackward<T>& skip, const SkipPart& part, int64_t token,
                        int64_t group, float* scratch) {
  const MeanSkipOperands<T>& of = skip.operands;
  const int64_t head_dim = of.head_dim;
  const SkipRows<T> rows(of, token, group);
  const float root = std::sqrt(static_cast<float>(head_dim));
  float* const of_key_sum = scratch;
  float* const of_sum = scratch + head_dim;
  float* const total = scratch + 2 * head_dim;

  sum_of_key(rows, of_key_sum);
  *part.of_temperature += replace_by_gradient<T>(
      {.root = root, .temperature = of.temperature[group], .epsilon = of.epsilon},
      skip.of_key + rows.key_start, of_key_sum, head_dim);
  std::fill_n(total, head_dim, 0.0f);
  for (int64_t head = 0; head < of.heads; ++head) {
    const int64_t start = rows.query_start + head * head_dim;
    sum_of_query(rows, head, of_sum);
    replace_by_gradient<T>({.root = root, .epsilon = of.epsilon}, skip.of_query + start, of_sum,
                           head_dim);
    write_query_gradients(skip, start, of_sum, of_key_sum, part.of_query_bias + head * head_dim,
                          total);
  }
  T* of_convolved = skip.of_convolved_key + rows.key_start;
  T* of_projected = skip.of_projected_key + rows.key_start;
  float* of_bias = part.of_key_bias;
#pragma GCC ivdep
  for (int64_t c = 0; c < head_dim; ++c) {
    of_bias[c] += of_key_sum[c];
    of_convolved[c] = static_cast<T>(of_key_sum[c]);
    of_projected[c] = static_cast<T>(0.5f * (total[c] + of_key_sum[c]));
  }
}

}  // namespace

template <typename T>
void mean_skip_fast(const MeanSkipForward<T>& skip, int threads) {
  const MeanSkipOperands<T>& of = skip.operands;
  const int64_t head_dim = of.head_dim;
  const float root = std::sqrt(static_cast<float>(head_dim));
  parallel_ranges(threads, of.tokens * of.groups, row_grain((of.heads + 1) * head_dim),
                  [&](int64_t begin, int64_t end, int thread) {
                    float* const key_sum = skip.scratch + thread * 2 * head_dim;
                    float* const sum = key_sum + head_dim;
                    for (int64_t item = begin; item < end; ++item) {
                      const int64_t group = item % of.groups;
                      const SkipRows<T> rows(of, item / of.groups, group);
                      sum_of_key(rows, key_sum);
                      const float factor = of.temperature[group] * root;
                      scale_row(key_sum, factor * inverse_of(key_sum, head_dim, of.epsilon),
                                skip.key + rows.key_start, head_dim);
                      for (int64_t head = 0; head < of.heads; ++head) {
                        sum_of_query(rows, head, sum);
                        scale_row(sum, root * inverse_of(sum, head_dim, of.epsilon),
                                  skip.query + rows.query_start + head * head_dim, head_dim);
                      }
                    }
                  });
}

template <typename T>
void mean_skip_gradient_fast(const MeanSkipBackward<T>& skip, int64_t parts, int threads) {
  const MeanSkipOperands<T>& of = skip.operands;
  parallel_items(threads, parts, [&](int64_t part, int thread) {
    float* const scratch = skip.scratch + thread * 3 * of.head_dim;
    std::fill_n(skip.parts + part * skip.part_width(), skip.part_width(), 0.0f);
    const int64_t end = of.tokens * (part + 1) / parts;
    for (int64_t token = of.tokens * part / parts; token < end; ++token) {
      for (int64_t group = 0; group < of.groups; ++group) {
        gradients_of_group(skip, SkipPart(skip, part, group), token, group, scratch);
      }
    }
  });
  add_weight_parts({.count = parts,
                    .width = skip.part_width(),
                    .parts = skip.parts,
                    .to = {skip.of_query_bias, skip.of_key_bias, skip.of_temperature},
                    .sizes = {of.query_channels(), of.key_channels(), of.groups}},
                   threads);
}

template void mean_skip_fast(const MeanSkipForward<float>&, int);
template void mean_skip_fast(const MeanSkipForward<BFloat16>&, int);
template void mean_skip_gradient_fast(const MeanSkipBackward<float>&, int64_t, int);
template void mean_skip_gradient_fast(const MeanSkipBackward<BFloat16>&, int64_t, int);

}  // namespace tessera
