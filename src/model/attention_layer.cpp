#include "model/attention_layer.h"

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

/// Applies the family's norm of queries or keys: over whole rows (OLMoE), over each head, or none.
Value query_key_norm(ModelWriter& writer, std::string_view name, Value x) {
  const ModelConfig& config = writer.config;
  const int64_t row = writer.builder.spec(x).shape[1];
  if (config.query_key_norm == QueryKeyNorm::projection) return writer.norm(name, x, row, 0).output;
  if (config.query_key_norm == QueryKeyNorm::head) {
    return writer.norm(name, x, config.head_size(), config.head_size()).output;
  }
  return x;
}

Value clip(ModelWriter& writer, Value x) {
  return writer.config.clip_qkv > 0 ? clamp(writer.builder, x, writer.config.clip_qkv) : x;
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
  Value query = clip(writer, query_key_norm(writer, "query_norm", projections[0]));
  Value key = clip(writer, query_key_norm(writer, "key_norm", projections[1]));
  const Value value = clip(writer, projections[2]);
  query = rotary(builder, query, place.rotary_table, config.head_size());
  key = rotary(builder, key, place.rotary_table, config.head_size());

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
