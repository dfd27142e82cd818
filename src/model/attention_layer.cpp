#include "model/attention_layer.h"

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

Value clip(ModelWriter& writer, Value x) {
  return writer.config.clip_qkv > 0 ? clamp(writer.builder, x, writer.config.clip_qkv) : x;
}

/// Applies the family's norm of queries or keys, clips them and rotates them. The norm is over
/// whole rows (OLMoE), over each head, or none.
Value normed_and_rotated(ModelWriter& writer, std::string_view name, Value x, Value table) {
  const ModelConfig& config = writer.config;
  const int64_t head = config.head_size();
  const bool has_norm = config.query_key_norm != QueryKeyNorm::none;
  const bool by_heads = config.query_key_norm == QueryKeyNorm::head;
  const int64_t size = by_heads ? head : writer.builder.spec(x).shape[1];
  const int64_t group = by_heads ? head : 0;
  if (has_norm && config.clip_qkv == 0) {
    return writer.norm_and_rotary(name, x, size, group, table, head);
  }
  if (has_norm) x = writer.norm(name, x, size, group).output;
  return rotary(writer.builder, clip(writer, x), table, head);
}

}  // namespace

int64_t rotary_channels(const ModelConfig& config) {
  return 2 * std::llround(config.rotary_fraction * static_cast<double>(config.head_size()) / 2);
}

Value attention_layer(ModelWriter& writer, Value x, const AttentionPlace& place) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("attention", Block::attention);
  const int64_t hidden = config.hidden_size;
  const int64_t query_size = config.heads * config.head_size();
  const int64_t kv_size = config.kv_heads * config.head_size();

  const Value weights[] = {writer.matrix("query", {query_size, hidden}),
                           writer.matrix("key", {kv_size, hidden}),
                           writer.matrix("value", {kv_size, hidden})};
  const std::vector<Value> projections = linears(builder, x, weights);
  const Value query = normed_and_rotated(writer, "query_norm", projections[0], place.rotary_table);
  const Value key = normed_and_rotated(writer, "key_norm", projections[1], place.rotary_table);
  const Value value = clip(writer, projections[2]);

  const AttentionOptions options{.sequence = place.sequence,
                                 .heads = config.heads,
                                 .kv_heads = config.kv_heads,
                                 .head_dim = config.head_size()};
  Value mixed;
  if (place.cache_position) {
    const Spec cache{{place.capacity, kv_size}, writer.compute, {}};
    const Value key_cache = builder.state(builder.qualified("key_cache"), cache);
    const Value value_cache = builder.state(builder.qualified("value_cache"), cache);
    mixed = cached_attention(builder, query, key, value, key_cache, value_cache,
                             *place.cache_position, options);
  } else {
    mixed =
        attention(builder, query, key, value, options, {.document_starts = place.document_starts});
  }
  return linear(builder, mixed, writer.output_matrix("output", {hidden, query_size}));
}

}  // namespace tessera
