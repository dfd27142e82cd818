#include "model/attention_layer.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "model/compressed_attention.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

class AttentionWriter {
 public:
  AttentionWriter(ModelWriter& writer, const AttentionInputs& inputs)
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

  Value write(Value x) { return attend(writer_, project(writer_.gather_positions(x)), inputs_); }

 private:
  int64_t size(int64_t heads) const { return heads * config_.head_size(); }
  /// Returns whether every rank computes all key heads, because there are fewer than ranks.
  bool shared_keys() const { return config_.kv_heads < ranks_; }

  AttentionHeads project(Value x) {
    const int64_t hidden = config_.hidden_size;
    const Distribution key_distribution = shared_keys() ? Distribution() : writer_.over_tensor(0);
    const auto matrix = [&](std::string_view name, int64_t heads, const Distribution& split) {
      return use_like(builder_, writer_.matrix(name, {size(heads), hidden}, split), x);
    };
    const std::vector<Value> weights{matrix("query", config_.heads, writer_.over_tensor(0)),
                                     matrix("key", config_.kv_heads, key_distribution),
                                     matrix("value", config_.kv_heads, key_distribution)};
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

  Value own_heads(Value x) { return shared_keys() ? take_own_heads(writer_, x) : x; }

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
    // The tensor axis has one rank, which has the whole rows.
    x = convert(builder_, x, tensor_, Placement::sharded, replicated());
    return convert(builder_, fused(name, x, before.shape[1], 0), tensor_, Placement::replicated,
                   split);
  }

  Value rotated(Value x) { return rotary(builder_, x, inputs_.rotary_table, config_.head_size()); }

  Value fused(std::string_view name, Value x, int64_t size, int64_t group) {
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

}  // namespace

int64_t rotary_channels(const ModelConfig& config) {
  return 2 * std::llround(config.rotary_fraction * static_cast<double>(config.head_size()) / 2);
}

Value attention_layer(ModelWriter& writer, Value x, const AttentionInputs& inputs) {
  const auto scope = writer.builder.scope("attention", Block::attention);
  if (writer.config.attention == AttentionKind::compressed_convolutional) {
    return compressed_attention(writer, x, inputs);
  }
  return AttentionWriter(writer, inputs).write(x);
}

}  // namespace tessera
