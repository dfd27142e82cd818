#pragma once

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/cca/mean_skip_kernels.h"

namespace tessera {

/// The sums s = convolved + bias + mean that the norm takes, for one token and one group: a key
/// head and the query heads that share it. The formulas have the names of MeanSkipOperands.
template <typename T>
class SkipSums {
 public:
  using Wide = Compute<T>;
  SkipSums(const MeanSkipOperands<T>& operands, int64_t token, int64_t group)
      : operands_(operands),
        group_(group),
        key_row_((token * operands.groups + group) * operands.head_dim),
        query_row_(key_row_ * operands.heads) {}

  /// Returns the offset of a head's row [head_dim] in tensors of queries. key_row() is the same in
  /// tensors of keys.
  int64_t query_row(int64_t head) const { return query_row_ + head * operands_.head_dim; }
  int64_t key_row() const { return key_row_; }
  /// Returns the offset of a head's row [head_dim] in query_bias. key_channel() is the same in
  /// key_bias.
  int64_t query_channel(int64_t head) const {
    return (group_ * operands_.heads + head) * operands_.head_dim;
  }
  int64_t key_channel() const { return group_ * operands_.head_dim; }

  /// Returns mean[head, c] = (projected_query[head, c] + projected_key[c]) / 2.
  Wide mean(int64_t head, int64_t c) const {
    return (static_cast<Wide>(operands_.projected_query[query_row(head) + c]) +
            static_cast<Wide>(operands_.projected_key[key_row_ + c])) /
           2;
  }
  /// Returns convolved_query[head, c] + query_bias[head, c] + mean[head, c].
  Wide query(int64_t head, int64_t c) const {
    return static_cast<Wide>(operands_.convolved_query[query_row(head) + c]) +
           operands_.query_bias[query_channel(head) + c] + mean(head, c);
  }
  /// Returns convolved_key[c] + key_bias[c] + the mean of mean[head, c] over the group's heads.
  Wide key(int64_t c) const {
    Wide total = 0;
    for (int64_t head = 0; head < operands_.heads; ++head) total += mean(head, c);
    return static_cast<Wide>(operands_.convolved_key[key_row_ + c]) +
           operands_.key_bias[key_channel() + c] + total / static_cast<Wide>(operands_.heads);
  }

 private:
  const MeanSkipOperands<T>& operands_;
  int64_t group_;
  int64_t key_row_;
  int64_t query_row_;
};

/// Returns 1 / sqrt(sum_c value(c)^2 + epsilon), with c over the channels of a head.
template <typename Wide, typename Value>
Wide inverse_norm(int64_t head_dim, double epsilon, const Value& value) {
  Wide squares = 0;
  for (int64_t c = 0; c < head_dim; ++c) squares += value(c) * value(c);
  return 1 / std::sqrt(squares + static_cast<Wide>(epsilon));
}

/// Defines mean_skip_norm(), for each token and group. s_query and s_key are the sums of SkipSums.
///   query[head, c] = √head_dim * s_query[head, c] / sqrt(sum_c s_query[head, c]^2 + epsilon)
///   key[c] = temperature[group] * √head_dim * s_key[c] / sqrt(sum_c s_key[c]^2 + epsilon)
template <typename T>
void mean_skip_plain(const MeanSkipForward<T>& skip, int threads) {
  using Wide = Compute<T>;
  const MeanSkipOperands<T>& operands = skip.operands;
  const Wide root = std::sqrt(static_cast<Wide>(operands.head_dim));
  parallel_each(threads, operands.tokens * operands.groups, 1, [&](int64_t item) {
    const int64_t group = item % operands.groups;
    const SkipSums<T> sums(operands, item / operands.groups, group);
    for (int64_t head = 0; head < operands.heads; ++head) {
      const auto sum = [&](int64_t c) { return sums.query(head, c); };
      const Wide factor = root * inverse_norm<Wide>(operands.head_dim, operands.epsilon, sum);
      T* query = skip.query + sums.query_row(head);
      for (int64_t c = 0; c < operands.head_dim; ++c) query[c] = static_cast<T>(factor * sum(c));
    }
    const auto sum = [&](int64_t c) { return sums.key(c); };
    const Wide factor = operands.temperature[group] * root *
                        inverse_norm<Wide>(operands.head_dim, operands.epsilon, sum);
    T* key = skip.key + sums.key_row();
    for (int64_t c = 0; c < operands.head_dim; ++c) key[c] = static_cast<T>(factor * sum(c));
  });
}

/// The gradient of y[c] = scale * root * s[c] * r, where r = 1 / sqrt(sum_c s[c]^2 + epsilon). y is
/// a query or a key, and g is its gradient.
///   s_gradient[c] = factor * (g[c] - s[c] * projection)
///   factor = scale * root * r, projection = r^2 * sum_c s[c] * g[c]
///   scale_gradient = root * r * sum_c s[c] * g[c]
template <typename Wide>
struct NormGradientFactors {
  /// `sum` and `gradient` return channel c of s and of g. `root` is √head_dim; `scale` is 1 for a
  /// query head and the temperature for a key head.
  template <typename Sum, typename Gradient>
  NormGradientFactors(int64_t head_dim, double epsilon, Wide root, Wide scale, const Sum& sum,
                      const Gradient& gradient) {
    const Wide inverse = inverse_norm<Wide>(head_dim, epsilon, sum);
    Wide products = 0;
    for (int64_t c = 0; c < head_dim; ++c) products += sum(c) * gradient(c);
    factor = scale * root * inverse;
    projection = inverse * inverse * products;
    scale_gradient = root * inverse * products;
  }
  /// Returns the gradient of one channel of s.
  Wide s_gradient(Wide gradient, Wide sum) const { return factor * (gradient - sum * projection); }

  Wide factor;
  Wide projection;
  Wide scale_gradient;  ///< the gradient of `scale`
};

/// Defines the gradients of mean_skip_norm(). A thread takes whole groups and adds up a group's
/// tokens in order. s_query_gradient and s_key_gradient are the gradients of SkipSums' sums (see
/// NormGradientFactors):
///   convolved_query_gradient[head, c] = s_query_gradient[head, c]
///   convolved_key_gradient[c] = s_key_gradient[c]
///   projected_query_gradient[head, c] =
///       (s_query_gradient[head, c] + s_key_gradient[c] / heads) / 2
///   projected_key_gradient[c] = (sum_head s_query_gradient[head, c] + s_key_gradient[c]) / 2
///   query_bias_gradient, key_bias_gradient = sum_t of s_query_gradient, s_key_gradient
///   temperature_gradient = sum_t of the key head's scale_gradient
template <typename T>
void mean_skip_gradient_plain(const MeanSkipBackward<T>& skip, int threads) {
  using Wide = Compute<T>;
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t head_dim = operands.head_dim;
  const Wide root = std::sqrt(static_cast<Wide>(head_dim));
  parallel_ranges(threads, operands.groups, 1, [&](int64_t begin, int64_t end, int thread) {
    Wide* const s_key_gradient = skip.scratch + thread * 3 * head_dim;
    Wide* const s_query_gradient_sum = s_key_gradient + head_dim;  // over the group's heads
    for (int64_t group = begin; group < end; ++group) {
      const int64_t channels = operands.heads * head_dim;
      std::fill_n(skip.query_bias_gradient + group * channels, channels, Wide{0});
      std::fill_n(skip.key_bias_gradient + group * head_dim, head_dim, Wide{0});
      skip.temperature_gradient[group] = 0;
      for (int64_t token = 0; token < operands.tokens; ++token) {
        const SkipSums<T> sums(operands, token, group);
        const T* const key_gradient = skip.key_gradient + sums.key_row();
        const auto key_sum = [&](int64_t c) { return sums.key(c); };
        const NormGradientFactors<Wide> key(
            head_dim, operands.epsilon, root, operands.temperature[group], key_sum,
            [&](int64_t c) { return static_cast<Wide>(key_gradient[c]); });
        for (int64_t c = 0; c < head_dim; ++c) {
          s_key_gradient[c] = key.s_gradient(static_cast<Wide>(key_gradient[c]), key_sum(c));
          skip.key_bias_gradient[sums.key_channel() + c] += s_key_gradient[c];
          s_query_gradient_sum[c] = 0;
        }
        skip.temperature_gradient[group] += key.scale_gradient;
        for (int64_t head = 0; head < operands.heads; ++head) {
          const int64_t row = sums.query_row(head);
          const auto query_sum = [&](int64_t c) { return sums.query(head, c); };
          const NormGradientFactors<Wide> query(
              head_dim, operands.epsilon, root, Wide{1}, query_sum,
              [&](int64_t c) { return static_cast<Wide>(skip.query_gradient[row + c]); });
          for (int64_t c = 0; c < head_dim; ++c) {
            const Wide s_query_gradient =
                query.s_gradient(static_cast<Wide>(skip.query_gradient[row + c]), query_sum(c));
            skip.query_bias_gradient[sums.query_channel(head) + c] += s_query_gradient;
            s_query_gradient_sum[c] += s_query_gradient;
            skip.convolved_query_gradient[row + c] = static_cast<T>(s_query_gradient);
            skip.projected_query_gradient[row + c] = static_cast<T>(
                (s_query_gradient + s_key_gradient[c] / static_cast<Wide>(operands.heads)) / 2);
          }
        }
        for (int64_t c = 0; c < head_dim; ++c) {
          skip.convolved_key_gradient[sums.key_row() + c] = static_cast<T>(s_key_gradient[c]);
          skip.projected_key_gradient[sums.key_row() + c] =
              static_cast<T>((s_query_gradient_sum[c] + s_key_gradient[c]) / 2);
        }
      }
    }
  });
}

}  // namespace tessera
