#include "model/attend.h"

#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/attention/repeat_heads.h"
#include "ops/collective/convert.h"
#include "ops/linear/linear.h"

namespace tessera {
namespace {

class AttentionCore {
 public:
  AttentionCore(ModelWriter& writer, const AttentionInputs& inputs)
      : builder_(writer.builder), config_(writer.config), mesh_(writer.mesh()), inputs_(inputs) {}

  /// Writes attention over positions that the context axis splits.
  Value mix(const AttentionHeads& heads) {
    const Axis context = mesh_.context();
    const auto gather = [&](Value x) {
      return convert(builder_, x, context, Placement::sharded, replicated());
    };
    const Value key = gather(heads.key);
    const Value value = gather(heads.value);
    AttentionOptions wanted = options();
    if (inputs_.key_positions) {
      wanted.keys = wanted.sequence * mesh_.size(context);
      return attention(builder_, heads.query, key, value, wanted,
                       {.document_starts = inputs_.document_starts,
                        .queries = inputs_.positions,
                        .keys = inputs_.key_positions});
    }
    // The context axis has one rank, so rows are positions.
    AttentionPositions positions;
    if (inputs_.document_starts) positions.document_starts = gather(*inputs_.document_starts);
    const Value mixed = attention(builder_, gather(heads.query), key, value, wanted, positions);
    return convert(builder_, mixed, context, Placement::replicated,
                   builder_.spec(heads.query).distribution.on(context));
  }

  /// Writes attention of the tokens of one sequence, which no other rank has a part of, with
  /// caches.
  Value cached(const AttentionHeads& heads) {
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
    Value mixed = cached_attention(builder_, gather(heads.query), key, gather(heads.value),
                                   key_cache, value_cache, *inputs_.cache_position, options());
    for (const Axis axis : split.order(0)) {
      mixed = convert(builder_, mixed, axis, Placement::replicated, split.on(axis));
    }
    return mixed;
  }

 private:
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

Value take_own_heads(ModelWriter& writer, Value x) {
  const ModelConfig& config = writer.config;
  const Axis tensor = writer.mesh().tensor();
  const int64_t ranks = writer.mesh().size(tensor);
  if (ranks > config.kv_heads) {
    x = repeat_heads(writer.builder, x, config.head_size(), ranks / config.kv_heads);
  }
  return convert(writer.builder, x, tensor, Placement::replicated, sharded(1));
}

Value attend(ModelWriter& writer, const AttentionHeads& heads, const AttentionInputs& inputs) {
  const ModelConfig& config = writer.config;
  AttentionCore core(writer, inputs);
  const Value mixed = inputs.cache_position ? core.cached(heads) : core.mix(heads);
  const Value output = writer.output_matrix(
      "output", {config.hidden_size, config.heads * config.head_size()}, writer.over_tensor(1));
  return writer.scatter_positions(
      linear(writer.builder, mixed, use_like(writer.builder, output, mixed)));
}

}  // namespace tessera
