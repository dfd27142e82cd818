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

class AttentionWriter {
 public:
  AttentionWriter(ModelWriter& writer, const AttentionPlace& place)
      : writer_(writer),
        builder_(writer.builder),
        config_(writer.config),
        place_(place),
        tensor_(writer.mesh().tensor()),
        ranks_(writer.mesh().size(tensor_)) {
    // mesh_of() has told the user what does not divide.
    TESSERA_CHECK(config_.heads % ranks_ == 0, "{} heads over {} ranks", config_.heads, ranks_);
    TESSERA_CHECK(config_.kv_heads % ranks_ == 0 || ranks_ % config_.kv_heads == 0,
                  "{} key heads over {} ranks", config_.kv_heads, ranks_);
  }

  Value write(Value x) {
    x = writer_.gather_positions(x);
    const Heads heads = project(x);
    const int64_t hidden = config_.hidden_size;
    const Value mixed = place_.cache_position ? cached(heads) : mix(heads);
    const Value output =
        writer_.output_matrix("output", {hidden, size(config_.heads)}, writer_.over_tensor(1));
    return writer_.scatter_positions(linear(builder_, mixed, use_like(builder_, output, x)));
  }

 private:
  /// [tokens, heads · head_dim] each, split by heads over the tensor axis.
  struct Heads {
    Value query;
    Value key;
    Value value;
  };

  int64_t size(int64_t heads) const { return heads * config_.head_size(); }
  /// Whether every rank computes all key heads, because there are fewer than ranks.
  bool shared_keys() const { return config_.kv_heads < ranks_; }

  Heads project(Value x) {
    const int64_t hidden = config_.hidden_size;
    const Distribution of_keys = shared_keys() ? Distribution() : writer_.over_tensor(0);
    const auto matrix = [&](std::string_view name, int64_t heads, const Distribution& split) {
      return use_like(builder_, writer_.matrix(name, {size(heads), hidden}, split), x);
    };
    const std::vector<Value> weights{matrix("query", config_.heads, writer_.over_tensor(0)),
                                     matrix("key", config_.kv_heads, of_keys),
                                     matrix("value", config_.kv_heads, of_keys)};
    std::vector<Value> projections;
    if (shared_keys()) {
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

  Value clip(Value x) { return config_.clip_qkv > 0 ? clamp(builder_, x, config_.clip_qkv) : x; }

  /// Applies the family's norm of queries or keys, clips them and rotates them. The norm is over
  /// whole rows (OLMoE), over each head, or none.
  Value normed_and_rotated(std::string_view name, Value x) {
    const Spec before = builder_.spec(x);
    const TypeOnAxis& split = before.distribution.on(tensor_);
    switch (config_.query_key_norm) {
      case QueryKeyNorm::none:
        return rotated(clip(x));
      case QueryKeyNorm::head:
        return fused(name, x, config_.head_size(), config_.head_size());
      case QueryKeyNorm::projection:
        break;
    }
    if (!split.split()) return fused(name, x, before.shape[1], 0);
    if (ranks_ > 1) return rotated(clip(writer_.split_norm(name, x, before.shape[1] * ranks_)));
    // One rank has the whole rows.
    x = convert(builder_, x, tensor_, Placement::sharded, replicated());
    return convert(builder_, fused(name, x, before.shape[1], 0), tensor_, Placement::replicated,
                   split);
  }

  Value rotated(Value x) { return rotary(builder_, x, place_.rotary_table, config_.head_size()); }

  Value fused(std::string_view name, Value x, int64_t size, int64_t group) {
    if (config_.clip_qkv == 0) {
      return writer_.norm_and_rotary(name, x, size, group, place_.rotary_table,
                                     config_.head_size());
    }
    return rotated(clip(writer_.norm(name, x, size, group).output));
  }

  /// Of keys or values that every rank has, those of the heads that its queries read.
  Value own_heads(Value x) {
    if (!shared_keys()) return x;
    x = repeat_heads(builder_, x, config_.head_size(), ranks_ / config_.kv_heads);
    return convert(builder_, x, tensor_, Placement::replicated, sharded(1));
  }

  AttentionOptions options() const {
    return {.sequence = place_.sequence,
            .heads = config_.heads / ranks_,
            .kv_heads = std::max<int64_t>(config_.kv_heads / ranks_, 1),
            .head_dim = config_.head_size()};
  }

  /// Attention over positions that the context axis splits.
  Value mix(const Heads& heads) {
    const Axis context = writer_.mesh().context();
    const auto gather = [&](Value x) {
      return convert(builder_, x, context, Placement::sharded, replicated());
    };
    const Value key = gather(heads.key);
    const Value value = gather(heads.value);
    AttentionOptions wanted = options();
    if (place_.key_positions) {
      wanted.keys = wanted.sequence * writer_.mesh().size(context);
      return attention(builder_, heads.query, key, value, wanted,
                       {.document_starts = place_.document_starts,
                        .positions = place_.positions,
                        .key_positions = place_.key_positions});
    }
    // One rank has all positions, and rows are positions.
    AttentionPlaces places;
    if (place_.document_starts) places.document_starts = gather(*place_.document_starts);
    const Value mixed = attention(builder_, gather(heads.query), key, value, wanted, places);
    return convert(builder_, mixed, context, Placement::replicated,
                   builder_.spec(heads.query).distribution.on(context));
  }

  /// Attention of the tokens of one sequence, which no other rank has a part of.
  Value cached(const Heads& heads) {
    const Distribution split = builder_.spec(heads.query).distribution;
    const auto gather = [&](Value x) {
      for (const Axis axis : split.joining_order(0)) {
        x = convert(builder_, x, axis, Placement::sharded, replicated());
      }
      return x;
    };
    const Value key = gather(heads.key);
    const Spec rows = builder_.spec(key);
    const Spec cache{{place_.capacity, rows.shape[1]}, rows.dtype, rows.distribution};
    const Value key_cache = builder_.state(builder_.qualified("key_cache"), cache);
    const Value value_cache = builder_.state(builder_.qualified("value_cache"), cache);
    Value mixed = cached_attention(builder_, gather(heads.query), key, gather(heads.value),
                                   key_cache, value_cache, *place_.cache_position, options());
    for (const Axis axis : split.order(0)) {
      mixed = convert(builder_, mixed, axis, Placement::replicated, split.on(axis));
    }
    return mixed;
  }

  ModelWriter& writer_;
  Builder& builder_;
  const ModelConfig& config_;
  const AttentionPlace& place_;
  const Axis tensor_;
  const int64_t ranks_;
};

}  // namespace

int64_t rotary_channels(const ModelConfig& config) {
  return 2 * std::llround(config.rotary_fraction * static_cast<double>(config.head_size()) / 2);
}

Value attention_layer(ModelWriter& writer, Value x, const AttentionPlace& place) {
  const auto scope = writer.builder.scope("attention", Block::attention);
  return AttentionWriter(writer, place).write(x);
}

}  // namespace tessera
