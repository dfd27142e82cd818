#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/attention_shape.h"
#include "ops/attention/flash_tiles.h"
#include "ops/attention/key_ranges.h"
#include "ops/attention/scratch.h"
#include "ops/math/vector_math.h"

namespace tessera {

/// The matrix products of tiles of some queries and some keys (see ForwardLayout).
using ForwardTable = TileTable<2>;

/// The memory layout of a tile's queries, keys and values.
struct ForwardLayout {
  DType dtype;
  int64_t head_dim;
  int64_t query_stride;
  int64_t key_stride;
  int64_t tile_keys;  // elements from one row of scores to the next

  /// Returns the tile's products: scores q kᵀ, and [queries, head_dim] += probabilities v.
  std::array<GemmShape, 2> products(int64_t queries, int64_t keys) const {
    GemmShape scores =
        tile_product(dtype, {queries, keys, head_dim}, {query_stride, key_stride, tile_keys});
    GemmShape output =
        tile_product(dtype, {queries, head_dim, keys}, {tile_keys, key_stride, head_dim});
    scores.transpose_b = output.accumulate = true;
    return {scores, output};
  }
};

/// Attention of a tile of queries of one head, by one thread, with a running softmax. Call start(),
/// then absorb() for each tile of keys in ascending order, then finish(). Between the tiles of keys
/// a query has three numbers: the greatest score m, the sum l of the exponentials, and the output o
/// before the division by l. Scores s of further keys with values v change these to
///   m' = max(m, max s),  l' = e^(m - m') l + Σ e^(s - m'),  o' = e^(m - m') o + Σ e^(s - m') v
template <typename T>
class ForwardTile {
 public:
  /// Takes memory for tiles of up to kForwardQueries queries and `tile_keys` keys.
  ForwardTile(Scratch& scratch, int64_t tile_keys, int64_t head_dim, int64_t product_bytes)
      : head_dim_(head_dim),
        tile_keys_(tile_keys),
        scores_(scratch.array<float>(kForwardQueries * tile_keys)),
        probabilities_(probabilities_memory(scratch)),
        output_(scratch.array<float>(kForwardQueries * head_dim)),
        maximum_(scratch.array<float>(kForwardQueries)),
        sum_(scratch.array<float>(kForwardQueries)),
        product_workspace_(scratch.array<std::byte>(product_bytes)) {}

  /// Starts a tile of `queries` rows. Row i attends to keys [ranges.begin[i], ranges.end[i]).
  void start(const T* q, int64_t queries, const KeyRanges& ranges, double scale) {
    q_ = q;
    queries_ = queries;
    ranges_ = ranges;
    scale_ = static_cast<float>(scale);
    std::fill_n(output_, queries * head_dim_, 0.0f);
    std::fill_n(maximum_, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, queries, 0.0f);
  }

  /// Adds a tile of `columns` keys, from `first_key` on. Of these, each query attends to its range.
  void absorb(const T* keys, const T* values, int64_t first_key, int64_t columns,
              const ForwardTable::Products& products) {
    const auto [score_product, output_product] = products;
    score_product->run(q_, keys, scores_, product_workspace_);
    for (int64_t i = 0; i < queries_; ++i) {
      const int64_t begin = std::max<int64_t>(ranges_.begin[i] - first_key, 0);
      const int64_t end = std::min<int64_t>(ranges_.end[i] - first_key, columns);
      absorb_row(i, begin, end, columns);
    }
    output_product->run(probabilities_, values, output_, product_workspace_);
  }

  /// Writes the outputs of the first `queries` rows, `stride` elements apart. Writes their
  /// log-sum-exps too, unless `log_sum_exp` is null.
  void finish(T* output, int64_t queries, int64_t stride, float* log_sum_exp) const {
    for (int64_t i = 0; i < queries; ++i) {
      const float factor = sum_[i] > 0 ? 1.0f / sum_[i] : 0.0f;  // 0 if it attended to no key
      const float* row = output_ + i * head_dim_;
      T* result = output + i * stride;
      for (int64_t e = 0; e < head_dim_; ++e) result[e] = static_cast<T>(row[e] * factor);
      if (log_sum_exp) log_sum_exp[i] = maximum_[i] + std::log(sum_[i]);
    }
  }

 private:
  /// Returns memory for the probabilities. In f32 they overwrite the scores.
  T* probabilities_memory(Scratch& scratch) {
    if constexpr (std::is_same_v<T, float>) {
      return scores_;
    } else {
      return scratch.array<T>(kForwardQueries * tile_keys_);
    }
  }

  /// Turns the scores of query i into probabilities, masks those outside [begin, end), and updates
  /// the query's maximum, sum and output.
  void absorb_row(int64_t i, int64_t begin, int64_t end, int64_t columns) {
    const float* scores = scores_ + i * tile_keys_;
    T* probabilities = probabilities_ + i * tile_keys_;
    if (begin >= end) {
      std::fill_n(probabilities, columns, T{});
      return;
    }
    float greatest = scores[begin];
#pragma omp simd reduction(max : greatest)
    for (int64_t j = begin; j < end; ++j) greatest = greatest < scores[j] ? scores[j] : greatest;
    const float maximum = std::max(maximum_[i], greatest * scale_);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = begin; j < end; ++j) {
      const float probability = exp_softmax(scores[j] * scale_ - maximum);
      sum += probability;
      store_rounded(probability, probabilities[j]);
    }
    std::fill_n(probabilities, begin, T{});
    std::fill_n(probabilities + end, columns - end, T{});
    if (maximum > maximum_[i]) {
      const float correction = exp_softmax(maximum_[i] - maximum);
      sum_[i] *= correction;
      float* output = output_ + i * head_dim_;
      for (int64_t e = 0; e < head_dim_; ++e) output[e] *= correction;
      maximum_[i] = maximum;
    }
    sum_[i] += sum;
  }

  int64_t head_dim_;
  int64_t tile_keys_;
  float* scores_;     // [queries, tile_keys]
  T* probabilities_;  // [queries, tile_keys]
  float* output_;     // [queries, head_dim]
  float* maximum_;    // [queries], of the scaled scores
  float* sum_;        // [queries]
  std::byte* product_workspace_;
  const T* q_ = nullptr;
  int64_t queries_ = 0;
  KeyRanges ranges_;
  float scale_ = 0;
};

}  // namespace tessera
