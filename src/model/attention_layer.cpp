// Self-attention, in the order in which attention_layer() writes it:
//
// 1. The tensor axis splits the positions of x; they are gathered, so that each rank can compute
//    its own heads for all of them.
// 2. HeadProjections (or compressed_heads()) makes queries, keys and values. Their matrices are
//    split by heads, `~t i, ~o i -> t o` with o = heads · head_dim, and so are the results.
// 3. AttentionCore attends. Each rank of the context axis has the queries of its own positions, and
//    gathers the keys and values of all.
// 4. The output matrix is split along the same heads, so that a rank's product is its addend of a
//    sum over the heads. A reduce-scatter takes the sum and splits the positions again.

#include "model/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/repeat_heads.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

/// Writes queries, keys and values: linear maps, the family's norm, clipping and rotation.
class HeadProjections {
 public:
  HeadProjections(ModelWriter& writer, const AttentionInputs& inputs)
      : writer_(writer),
        builder_(writer.builder),
        config_(writer.config),
        inputs_(inputs),
        tensor_(writer.mesh().tensor()),
        ranks_(writer.mesh().size(tensor_)) {
    // mesh_of() refuses such numbers with an error for the user.
    TESSERA_CHECK(config_.heads % ranks_ == 0, "{} heads over {} ranks", config_.heads, ranks_);
    TESSERA_CHECK(config_.kv_heads % ranks_ == 0 || ranks_ % config_.kv_heads == 0,
                  "{} key heads over {} ranks", config_.kv_heads, ranks_);
  }

  AttentionHeads project(Value x) {
    const int64_t hidden = config_.hidden_size;
    const Distribution key_distribution = shared_keys() ? Distribution() : writer_.over_tensor(0);
    const auto matrix = [&](std::string_view name, int64_t heads, const Distribution& split) {
      return use_like(builder_, writer_.matrix(name, {channels(heads), hidden}, split), x);
    };
    const std::vector<Value> weights{matrix("query", config_.heads, writer_.over_tensor(0)),
                                     matrix("key", config_.kv_heads, key_distribution),
                                     matrix("value", config_.kv_heads, key_distribution)};
    std::vector<Value> projections;
    if (shared_keys()) {  // linears() gives all its products one distribution
      projections = linears(builder_, x, std::span(weights).first(1));
      const std::vector<Value> keys = linears(builder_, x, std::span(weights).subspan(1));
      projections.insert(projections.end(), keys.begin(), keys.end());
    } else {
      projections = linears(builder_, x, weights);
    }
    return {.query = normed_and_rotated("query_norm", projections[0]),
            .key = own_heads(normed_and_rotated("key_norm", projections[1])),
            .value = own_heads(clip(projections[2]))};
  }

 private:
  int64_t channels(int64_t heads) const { return heads * config_.head_size(); }
  /// Returns whether every rank computes all key heads, because there are fewer than ranks.
  bool shared_keys() const { return config_.kv_heads < ranks_; }

  /// Returns the keys or values that this rank's queries read.
  Value own_heads(Value x) { return shared_keys() ? own_key_heads(writer_, x) : x; }

  Value clip(Value x) { return config_.clip_qkv > 0 ? clamp(builder_, x, config_.clip_qkv) : x; }

  /// Applies the family's norm of queries or keys, clips them and rotates them. The norm is over
  /// whole rows (OLMoE), over each head, or none.
  Value normed_and_rotated(std::string_view name, Value x) {
    const Spec input = builder_.spec(x);
    const TypeOnAxis& split = input.distribution.on(tensor_);
    switch (config_.query_key_norm) {
      case QueryKeyNorm::none:
        return rotated(clip(x));
      case QueryKeyNorm::head:
        return norm_then_rotate(name, x, config_.head_size(), config_.head_size());
      case QueryKeyNorm::projection:
        break;
    }
    if (!split.split()) return norm_then_rotate(name, x, input.shape[1], 0);
    if (ranks_ > 1) return rotated(clip(writer_.split_norm(name, x, input.shape[1] * ranks_)));
    // The tensor axis has one rank, which has the whole rows.
    x = convert(builder_, x, tensor_, Placement::sharded, replicated());
    const Value result = norm_then_rotate(name, x, input.shape[1], 0);
    return convert(builder_, result, tensor_, Placement::replicated, split);
  }

  Value rotated(Value x) { return rotary(builder_, x, inputs_.rotary_table, config_.head_size()); }

  /// Writes norm and rotation as one operation, unless clipping comes between them.
  Value norm_then_rotate(std::string_view name, Value x, int64_t size, int64_t group) {
    if (config_.clip_qkv == 0) {
      return writer_.norm_and_rotary(name, x, size, group, inputs_.rotary_table,
                                     config_.head_size());
    }
    return rotated(clip(writer_.norm(name, x, size, group).output));
  }

  ModelWriter& writer_;
  Builder& builder_;
  const ModelConfig& config_;
  const AttentionInputs& inputs_;
  const Axis tensor_;
  const int64_t ranks_;
};

/// Writes attention over the heads of this tensor rank, with or without key-value caches.
class AttentionCore {
 public:
  AttentionCore(ModelWriter& writer, const AttentionInputs& inputs)
      : builder_(writer.builder), config_(writer.config), mesh_(writer.mesh()), inputs_(inputs) {}

  /// Writes attention over positions that the context axis splits.
  Value attend(const AttentionHeads& heads) {
    const Axis context = mesh_.context();
    const auto gather = [&](Value x) {
      return convert(builder_, x, context, Placement::sharded, replicated());
    };
    const Value key = gather(heads.key);
    const Value value = gather(heads.value);
    AttentionOptions attention_options = options();
    if (inputs_.key_positions) {
      attention_options.keys = attention_options.sequence * mesh_.size(context);
      return attention(builder_, heads.query, key, value, attention_options,
                       {.document_starts = inputs_.document_starts,
                        .queries = inputs_.positions,
                        .keys = inputs_.key_positions});
    }
    // The context axis has one rank, so rows are positions.
    AttentionPositions positions;
    if (inputs_.document_starts) positions.document_starts = gather(*inputs_.document_starts);
    const Value attended =
        attention(builder_, gather(heads.query), key, value, attention_options, positions);
    return convert(builder_, attended, context, Placement::replicated,
                   builder_.spec(heads.query).distribution.on(context));
  }

  /// Writes attention with key-value caches, for the tokens of one sequence.
  Value attend_with_caches(const AttentionHeads& heads) {
    const Distribution split = builder_.spec(heads.query).distribution;
    const auto gather = [&](Value x) {
      for (const Axis axis : split.joining_order(0)) {
        x = convert(builder_, x, axis, Placement::sharded, replicated());
      }
      return x;
    };
    const Value key = gather(heads.key);
    const Spec rows = builder_.spec(key);
    const Spec cache{{inputs_.capacity, rows.shape[1]}, rows.dtype, rows.distribution};
    const Value key_cache = builder_.state(builder_.qualified("key_cache"), cache);
    const Value value_cache = builder_.state(builder_.qualified("value_cache"), cache);
    Value attended = cached_attention(builder_, gather(heads.query), key, gather(heads.value),
                                      key_cache, value_cache, *inputs_.cache_position, options());
    for (const Axis axis : split.order(0)) {
      attended = convert(builder_, attended, axis, Placement::replicated, split.on(axis));
    }
    return attended;
  }

 private:
  /// Returns the sizes of the attention that one tensor rank computes.
  AttentionOptions options() const {
    const int64_t ranks = mesh_.size(mesh_.tensor());
    return {.sequence = inputs_.sequence,
            .heads = config_.heads / ranks,
            .kv_heads = std::max<int64_t>(config_.kv_heads / ranks, 1),
            .head_dim = config_.head_size()};
  }

  Builder& builder_;
  const ModelConfig& config_;
  const Mesh& mesh_;
  const AttentionInputs& inputs_;
};

}  // namespace

int64_t rotary_channels(const ModelConfig& config) {
  return 2 * std::llround(config.rotary_fraction * static_cast<double>(config.head_size()) / 2);
}

Value own_key_heads(ModelWriter& writer, Value x) {
  const ModelConfig& config = writer.config;
  const Axis tensor = writer.mesh().tensor();
  const int64_t ranks = writer.mesh().size(tensor);
  if (ranks > config.kv_heads) {
    x = repeat_heads(writer.builder, x, config.head_size(), ranks / config.kv_heads);
  }
  return convert(writer.builder, x, tensor, Placement::replicated, sharded(1));
}

Value attention_layer(ModelWriter& writer, Value x, const AttentionInputs& inputs) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("attention", Block::attention);
  const bool compressed = config.attention == AttentionKind::compressed_convolutional;
  x = writer.gather_positions(x);
  const AttentionHeads heads =
      compressed ? compressed_heads(writer, x, inputs) : HeadProjections(writer, inputs).project(x);
  AttentionCore core(writer, inputs);
  const Value attended =  // [tokens, heads · head_dim]
      inputs.cache_position ? core.attend_with_caches(heads) : core.attend(heads);
  const Value output = writer.output_matrix(
      "output", {config.hidden_size, config.heads * config.head_size()}, writer.over_tensor(1));
  return writer.scatter_positions(linear(builder, attended, use_like(builder, output, attended)));
}

}  // namespace tessera
