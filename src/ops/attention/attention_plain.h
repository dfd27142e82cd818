#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/attention_shape.h"
#include "ops/attention/key_ranges.h"

// The plain kernels of attention: its definition. i is a query, j a key and e a channel of a head.

namespace tessera {

/// Returns Σ_e a[e] · b[e].
template <typename T>
Compute<T> dot_plain(const T* a, const T* b, int64_t count) {
  Compute<T> sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    sum += static_cast<Compute<T>>(a[e]) * static_cast<Compute<T>>(b[e]);
  }
  return sum;
}

/// Writes the output of one query of one head for keys [begin, end). The range must not be empty.
/// Rows of keys and values are `stride` elements apart. `probabilities` is scratch memory of `end`
/// elements. Returns the log-sum-exp, log(sum_j exp(score[j])).
///   score[j] = scale * sum_e query[e] * keys[j, e]
///   output[e] = sum_j exp(score[j]) * values[j, e] / sum_j exp(score[j])
template <typename T>
Compute<T> attend_plain(const T* query, const T* keys, const T* values, int64_t stride,
                        int64_t begin, int64_t end, int64_t head_dim, double scale,
                        Compute<T>* probabilities, T* output) {
  using Wide = Compute<T>;
  Wide maximum = -std::numeric_limits<Wide>::infinity();
  for (int64_t j = begin; j < end; ++j) {
    probabilities[j] = static_cast<Wide>(scale) * dot_plain(query, keys + j * stride, head_dim);
    maximum = std::max(maximum, probabilities[j]);
  }
  Wide sum_of_exponentials = 0;
  for (int64_t j = begin; j < end; ++j) {
    probabilities[j] = std::exp(probabilities[j] - maximum);
    sum_of_exponentials += probabilities[j];
  }
  for (int64_t e = 0; e < head_dim; ++e) {
    Wide sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      sum += probabilities[j] * static_cast<Wide>(values[j * stride + e]);
    }
    output[e] = static_cast<T>(sum / sum_of_exponentials);
  }
  return maximum + std::log(sum_of_exponentials);
}

/// Computes the forward pass. Each query attends to the keys of its range (attend_plain()). A query
/// without keys gets the output 0 and the log-sum-exp -infinity.
/// `scratch` is [threads, keys].
///   output = softmax(scale * q kᵀ) v
template <typename T>
void attention_plain(const AttentionShape& shape, const T* q, const T* k, const T* v,
                     const KeyRanges& ranges, T* output, Compute<T>* log_sum_exp,
                     Compute<T>* scratch, int threads) {
  parallel_items(threads, shape.sequences * shape.heads, [&](int64_t item, int thread) {
    const AttentionHead head(shape, item / shape.heads, item % shape.heads);
    for (int64_t i = 0; i < shape.sequence; ++i) {
      const int64_t begin = ranges.begin[head.first_token + i];
      const int64_t end = ranges.end[head.first_token + i];
      const int64_t offset = head.query_offset + i * shape.query_stride();
      if (begin == end) {
        std::fill_n(output + offset, shape.head_dim, T{});
        log_sum_exp[head.row_offset + i] = -std::numeric_limits<Compute<T>>::infinity();
        continue;
      }
      log_sum_exp[head.row_offset + i] = attend_plain(
          q + offset, k + head.key_offset, v + head.key_offset, shape.key_stride(), begin, end,
          shape.head_dim, shape.scale, scratch + thread * shape.keys, output + offset);
    }
  });
}

/// The operands of attention over caches. The caches hold the new keys and values already.
template <typename T>
struct CachedAttentionOperands {
  const T* q;       // [tokens, heads * head_dim]
  const T* keys;    // [capacity, kv_heads * head_dim]
  const T* values;  // [capacity, kv_heads * head_dim]
  T* output;        // [tokens, heads * head_dim]
  int64_t position;
  int64_t capacity;
};

/// Computes attention over caches. `scratch` is [threads, capacity].
///   output[i] = softmax(scale * q[i] keys[0 : position + i + 1]ᵀ) values[0 : position + i + 1]
template <typename T>
void cached_attention_plain(const AttentionShape& shape, const CachedAttentionOperands<T>& operands,
                            Compute<T>* scratch, int threads) {
  parallel_items(threads, shape.heads, [&](int64_t item, int thread) {
    const AttentionHead head(shape, 0, item);
    for (int64_t i = 0; i < shape.sequence; ++i) {
      const int64_t offset = head.query_offset + i * shape.query_stride();
      attend_plain(operands.q + offset, operands.keys + head.key_offset,
                   operands.values + head.key_offset, shape.key_stride(), 0,
                   operands.position + i + 1, shape.head_dim, shape.scale,
                   scratch + thread * operands.capacity, operands.output + offset);
    }
  });
}

/// The operands of the backward pass, in the layouts of attention().
template <typename T>
struct AttentionGradientOperands {
  const T* q;
  const T* k;
  const T* v;
  const T* output;
  const Compute<T>* log_sum_exp;  // [sequences * heads, sequence]
  const T* output_gradient;
  KeyRanges ranges;
  T* q_gradient;
  T* k_gradient;
  T* v_gradient;
};

/// Computes the backward pass. For one head, P are the probabilities, O is the output and dO the
/// output's gradient. dV and dK are summed over the query heads of a key-value head. `scratch` is
/// [threads, 2 · keys + 1, head_dim].
///   delta = rowsum(dO ⊙ O), dS = scale P ⊙ (dO Vᵀ - delta)
///   dV = Pᵀ dO, dQ = dS K, dK = dSᵀ Q
template <typename T>
void attention_gradient_plain(const AttentionShape& shape,
                              const AttentionGradientOperands<T>& operands, Compute<T>* scratch,
                              int threads) {
  using Wide = Compute<T>;
  const int64_t head_dim = shape.head_dim;
  const auto scale = static_cast<Wide>(shape.scale);
  const auto wide = [](T value) { return static_cast<Wide>(value); };
  parallel_items(threads, shape.sequences * shape.kv_heads, [&](int64_t item, int thread) {
    Wide* key_gradients = scratch + thread * (2 * shape.keys + 1) * head_dim;  // [keys, head_dim]
    Wide* value_gradients = key_gradients + shape.keys * head_dim;             // [keys, head_dim]
    Wide* query_gradient = value_gradients + shape.keys * head_dim;            // [head_dim]
    std::fill_n(key_gradients, 2 * shape.keys * head_dim, Wide{0});
    const int64_t first_head = item % shape.kv_heads * shape.group_heads();
    for (int64_t h = first_head; h < first_head + shape.group_heads(); ++h) {
      const AttentionHead head(shape, item / shape.kv_heads, h);
      for (int64_t i = 0; i < shape.sequence; ++i) {
        const int64_t offset = head.query_offset + i * shape.query_stride();
        const T* query = operands.q + offset;
        const T* output_gradient = operands.output_gradient + offset;
        const Wide delta = dot_plain(output_gradient, operands.output + offset, head_dim);
        std::fill_n(query_gradient, head_dim, Wide{0});
        const KeyRanges attended = operands.ranges.from(head.first_token + i);
        for (int64_t j = *attended.begin; j < *attended.end; ++j) {
          const T* key = operands.k + head.key_offset + j * shape.key_stride();
          const T* value = operands.v + head.key_offset + j * shape.key_stride();
          const Wide probability = std::exp(scale * dot_plain(query, key, head_dim) -
                                            operands.log_sum_exp[head.row_offset + i]);
          const Wide score_gradient =
              probability * (dot_plain(output_gradient, value, head_dim) - delta) * scale;
          for (int64_t e = 0; e < head_dim; ++e) {
            value_gradients[j * head_dim + e] += probability * wide(output_gradient[e]);
            key_gradients[j * head_dim + e] += score_gradient * wide(query[e]);
            query_gradient[e] += score_gradient * wide(key[e]);
          }
        }
        for (int64_t e = 0; e < head_dim; ++e)
          operands.q_gradient[offset + e] = static_cast<T>(query_gradient[e]);
      }
    }
    const int64_t key_offset = AttentionHead(shape, item / shape.kv_heads, first_head).key_offset;
    for (int64_t j = 0; j < shape.keys; ++j) {
      for (int64_t e = 0; e < head_dim; ++e) {
        const int64_t offset = key_offset + j * shape.key_stride() + e;
        operands.k_gradient[offset] = static_cast<T>(key_gradients[j * head_dim + e]);
        operands.v_gradient[offset] = static_cast<T>(value_gradients[j * head_dim + e]);
      }
    }
  });
}

}  // namespace tessera
