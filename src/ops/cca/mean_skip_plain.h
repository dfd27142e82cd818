#pragma once

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/cca/mean_skip_kernels.h"

namespace tessera {

/// The sums that are normalised, of the heads of one token that share a key head.
template <typename T>
class SkipSums {
 public:
  using Wide = Compute<T>;
  SkipSums(const MeanSkipOperands<T>& operands, int64_t token, int64_t group)
      : of_(operands),
        group_(group),
        key_row_((token * operands.groups + group) * operands.head_dim),
        query_row_(key_row_ * operands.heads) {}

  /// Where the rows of a head of the group, and of its key head, begin.
  int64_t query_row(int64_t head) const { return query_row_ + head * of_.head_dim; }
  int64_t key_row() const { return key_row_; }
  int64_t query_channel(int64_t head) const { return (group_ * of_.heads + head) * of_.head_dim; }
  int64_t key_channel() const { return group_ * of_.head_dim; }

  /// Half of query and key before the convolutions.
  Wide mean(int64_t head, int64_t c) const {
    return (static_cast<Wide>(of_.projected_query[query_row(head) + c]) +
            static_cast<Wide>(of_.projected_key[key_row_ + c])) /
           2;
  }
  Wide query(int64_t head, int64_t c) const {
    return static_cast<Wide>(of_.convolved_query[query_row(head) + c]) +
           of_.query_bias[query_channel(head) + c] + mean(head, c);
  }
  Wide key(int64_t c) const {
    Wide total = 0;
    for (int64_t head = 0; head < of_.heads; ++head) total += mean(head, c);
    return static_cast<Wide>(of_.convolved_key[key_row_ + c]) + of_.key_bias[key_channel() + c] +
           total / static_cast<Wide>(of_.heads);
  }

 private:
  const MeanSkipOperands<T>& of_;
  int64_t group_;
  int64_t key_row_;
  int64_t query_row_;
};

/// One over the norm of a sum of which value(c) is channel c.
template <typename Wide, typename Value>
Wide inverse_norm(int64_t head_dim, double epsilon, const Value& value) {
  Wide squares = 0;
  for (int64_t c = 0; c < head_dim; ++c) squares += value(c) * value(c);
  return 1 / std::sqrt(squares + static_cast<Wide>(epsilon));
}

/// The definition of the mean skip with norm.
template <typename T>
void mean_skip_plain(const MeanSkipForward<T>& skip, int threads) {
  using Wide = Compute<T>;
  const MeanSkipOperands<T>& of = skip.operands;
  const Wide root = std::sqrt(static_cast<Wide>(of.head_dim));
  parallel_ranges(threads, of.tokens * of.groups, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item % of.groups;
      const SkipSums<T> sums(of, item / of.groups, group);
      for (int64_t head = 0; head < of.heads; ++head) {
        const auto sum = [&](int64_t c) { return sums.query(head, c); };
        const Wide factor = root * inverse_norm<Wide>(of.head_dim, of.epsilon, sum);
        T* query = skip.query + sums.query_row(head);
        for (int64_t c = 0; c < of.head_dim; ++c) query[c] = static_cast<T>(factor * sum(c));
      }
      const auto sum = [&](int64_t c) { return sums.key(c); };
      const Wide factor =
          of.temperature[group] * root * inverse_norm<Wide>(of.head_dim, of.epsilon, sum);
      T* key = skip.key + sums.key_row();
      for (int64_t c = 0; c < of.head_dim; ++c) key[c] = static_cast<T>(factor * sum(c));
    }
  });
}

/// The gradient of a sum through its norm: factor (g - sum · towards).
template <typename Wide>
struct NormGradientFactors {
  /// `root` is √head_dim; `scale` is 1 or the temperature.
  template <typename Sum, typename Gradient>
  NormGradientFactors(int64_t head_dim, double epsilon, Wide root, Wide scale, const Sum& sum,
                      const Gradient& gradient) {
    const Wide inverse = inverse_norm<Wide>(head_dim, epsilon, sum);
    Wide products = 0;
    for (int64_t c = 0; c < head_dim; ++c) products += sum(c) * gradient(c);
    factor = scale * root * inverse;
    towards = inverse * inverse * products;
    of_scale = root * inverse * products;
  }
  Wide of_sum(Wide gradient, Wide sum) const { return factor * (gradient - sum * towards); }

  Wide factor;
  Wide towards;
  Wide of_scale;  ///< the gradient of `scale`
};

/// The definition of the gradients. A thread has a group, and sums over its tokens in order.
template <typename T>
void mean_skip_gradient_plain(const MeanSkipBackward<T>& skip, int threads) {
  using Wide = Compute<T>;
  const MeanSkipOperands<T>& of = skip.operands;
  const int64_t head_dim = of.head_dim;
  const Wide root = std::sqrt(static_cast<Wide>(head_dim));
  parallel_ranges(threads, of.groups, 1, [&](int64_t begin, int64_t end, int thread) {
    Wide* const of_key_sum = skip.scratch + thread * 3 * head_dim;
    Wide* const of_query_sums = of_key_sum + head_dim;  // of all heads
    for (int64_t group = begin; group < end; ++group) {
      const int64_t channels = of.heads * head_dim;
      std::fill_n(skip.of_query_bias + group * channels, channels, Wide{0});
      std::fill_n(skip.of_key_bias + group * head_dim, head_dim, Wide{0});
      skip.of_temperature[group] = 0;
      for (int64_t token = 0; token < of.tokens; ++token) {
        const SkipSums<T> sums(of, token, group);
        const T* const of_key = skip.of_key + sums.key_row();
        const auto key_sum = [&](int64_t c) { return sums.key(c); };
        const NormGradientFactors<Wide> key(
            head_dim, of.epsilon, root, of.temperature[group], key_sum,
            [&](int64_t c) { return static_cast<Wide>(of_key[c]); });
        for (int64_t c = 0; c < head_dim; ++c) {
          of_key_sum[c] = key.of_sum(static_cast<Wide>(of_key[c]), key_sum(c));
          skip.of_key_bias[sums.key_channel() + c] += of_key_sum[c];
          of_query_sums[c] = 0;
        }
        skip.of_temperature[group] += key.of_scale;
        for (int64_t head = 0; head < of.heads; ++head) {
          const int64_t row = sums.query_row(head);
          const auto query_sum = [&](int64_t c) { return sums.query(head, c); };
          const NormGradientFactors<Wide> query(
              head_dim, of.epsilon, root, Wide{1}, query_sum,
              [&](int64_t c) { return static_cast<Wide>(skip.of_query[row + c]); });
          for (int64_t c = 0; c < head_dim; ++c) {
            const Wide of_sum =
                query.of_sum(static_cast<Wide>(skip.of_query[row + c]), query_sum(c));
            skip.of_query_bias[sums.query_channel(head) + c] += of_sum;
            of_query_sums[c] += of_sum;
            skip.of_convolved_query[row + c] = static_cast<T>(of_sum);
            skip.of_projected_query[row + c] =
                static_cast<T>((of_sum + of_key_sum[c] / static_cast<Wide>(of.heads)) / 2);
          }
        }
        for (int64_t c = 0; c < head_dim; ++c) {
          skip.of_convolved_key[sums.key_row() + c] = static_cast<T>(of_key_sum[c]);
          skip.of_projected_key[sums.key_row() + c] =
              static_cast<T>((of_query_sums[c] + of_key_sum[c]) / 2);
        }
      }
    }
  });
}

}  // namespace tessera
