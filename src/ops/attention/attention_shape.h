#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "ops/attention/attention.h"
#include "ops/support.h"

namespace tessera {

/// The sizes of one attention, from its options and the shapes of its operands.
struct AttentionShape {
  int64_t sequences = 0;
  int64_t sequence = 0;  ///< queries of one sequence
  int64_t keys = 0;      ///< keys of one sequence
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double scale = 0;
  /// True if queries and keys are of the same tokens, and row indices are positions. Then the last
  /// key of a tile of queries is known, and tiles have fewer shapes.
  bool aligned = true;

  int64_t tokens() const { return sequences * sequence; }
  /// Returns the shape of a tensor with one number for each query of each head. The queries of a
  /// head are contiguous, as in cuDNN.
  Shape row_shape() const { return {sequences, heads, sequence}; }
  int64_t group_heads() const { return heads / kv_heads; }    ///< query heads of a key-value head
  int64_t query_stride() const { return heads * head_dim; }   ///< elements of a token's row in q
  int64_t key_stride() const { return kv_heads * head_dim; }  ///< the same in k and v

  /// Returns the floating-point operations of one matrix product over the causal triangle. The
  /// forward pass takes two such products, the backward pass five. If queries are only a part of
  /// the keys' tokens, they count as if they were spread evenly over the sequence.
  double product_flops() const {
    return static_cast<double>(sequences * heads * head_dim) * static_cast<double>(sequence) *
           static_cast<double>(keys + 1);
  }
};

/// One query head of one sequence, and the offsets of its rows, in elements.
struct AttentionHead {
  AttentionHead(const AttentionShape& shape, int64_t item_sequence, int64_t item_head)
      : sequence_index(item_sequence),
        head_index(item_head),
        first_token(sequence_index * shape.sequence),
        query_offset(first_token * shape.query_stride() + head_index * shape.head_dim),
        key_offset(sequence_index * shape.keys * shape.key_stride() +
                   head_index / shape.group_heads() * shape.head_dim),
        row_offset((sequence_index * shape.heads + head_index) * shape.sequence) {}

  int64_t sequence_index;
  int64_t head_index;
  int64_t first_token;   ///< first token of the sequence
  int64_t query_offset;  ///< offset in q, the output and their gradients
  int64_t key_offset;    ///< offset in k, v and their gradients
  int64_t row_offset;    ///< offset in [sequences · heads, sequence]
};

/// Returns the sizes for `tokens` queries in sequences of `sequence` queries. Nothing is checked.
inline AttentionShape attention_shape(const AttentionOptions& options, int64_t tokens,
                                      int64_t sequence) {
  const int64_t keys = options.keys > 0 ? options.keys : sequence;
  const double scale =
      options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(options.head_dim));
  return {.sequences = tokens / sequence,
          .sequence = sequence,
          .keys = keys,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .head_dim = options.head_dim,
          .scale = scale,
          .aligned = keys == sequence};
}

/// Checks the options and the specs of q, k and v. Returns the sizes, for `sequence` queries in
/// each sequence. Throws InternalError, which names the operation, if they do not fit.
inline AttentionShape checked_attention_shape(const Operation& operation,
                                              const AttentionOptions& options, int64_t sequence,
                                              std::span<const Spec> inputs) {
  const Spec &q = inputs[0], &k = inputs[1], &v = inputs[2];
  TESSERA_EXPECT(operation,
                 options.kv_heads > 0 && options.head_dim > 0 && options.heads > 0 &&
                     options.heads % options.kv_heads == 0,
                 "{} query heads on {} key-value heads of {}; a multiple is expected",
                 options.heads, options.kv_heads, options.head_dim);
  TESSERA_EXPECT(operation, options.scale >= 0, "a scale of {}", options.scale);
  const bool matrices = q.shape.rank() == 2 && k.shape.rank() == 2 && is_floating(q.dtype);
  TESSERA_EXPECT(operation, matrices && q.shape[1] == options.heads * options.head_dim,
                 "queries {} with {} heads of {}", text_of(q), options.heads, options.head_dim);
  TESSERA_EXPECT(operation, sequence > 0 && options.keys >= 0 && q.shape[0] % sequence == 0,
                 "{} tokens are not whole sequences of {}", q.shape[0], sequence);
  const AttentionShape sizes = attention_shape(options, q.shape[0], sequence);
  TESSERA_EXPECT(
      operation,
      is_like(k, {{sizes.sequences * sizes.keys, sizes.key_stride()}, q.dtype}) && is_like(v, k),
      "keys {} and values {} with queries {} and {} key-value heads of {}", text_of(k), text_of(v),
      text_of(q), options.kv_heads, options.head_dim);
  return sizes;
}

}  // namespace tessera
