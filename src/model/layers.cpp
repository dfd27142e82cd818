#include "model/layers.h"

#include "model/feed_forward.h"
#include "ops/collective/convert.h"
#include "ops/embedding/embedding.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

std::optional<RotaryScaling> rotary_scaling(const ModelConfig& config) {
  if (config.rope_scaling == RopeScaling::none) return std::nullopt;
  return RotaryScaling{.factor = config.rope_factor,
                       .low_frequency_factor = config.rope_low_frequency_factor,
                       .high_frequency_factor = config.rope_high_frequency_factor,
                       .original_context = static_cast<double>(config.rope_original_context)};
}

}  // namespace

Value embedding_table(ModelWriter& writer) {
  const auto scope = writer.builder.scope("embedding", Block::embedding);
  writer.unit = "embedding";
  return writer.matrix("weight", {writer.config.vocabulary_size, writer.config.hidden_size},
                       writer.over_tensor(0, writer.config.vocabulary_size),
                       ParameterRole::embedding);
}

Value table_of_angles(ModelWriter& writer, Value positions) {
  const auto scope = writer.builder.scope("rotary", Block::attention);
  const Value table = rotary_table(writer.builder, positions,
                                   {.channels = rotary_channels(writer.config),
                                    .theta = writer.config.rope_theta,
                                    .scaling = rotary_scaling(writer.config)},
                                   writer.wide());
  writer.builder.keep(table, Keep::layer);  // all layers share it, even recomputed ones
  return table;
}

std::optional<Value> gathered_positions(ModelWriter& writer, Value positions) {
  const Axis context = writer.mesh().context();
  if (writer.mesh().size(context) == 1) return std::nullopt;
  const auto scope = writer.builder.scope("positions", Block::attention);
  const Value all = convert(writer.builder, positions, context, Placement::sharded, replicated());
  writer.builder.keep(all, Keep::layer);  // as the table of angles
  return all;
}

Embedded write_embedding(ModelWriter& writer, Value tokens) {
  const Value table = embedding_table(writer);
  const auto scope = writer.builder.scope("embedding", Block::embedding);
  const Value used = use_like(writer.builder, table, tokens);
  return {table, writer.scatter_positions(embedding(writer.builder, used, tokens))};
}

Value LayerWriter::normalised(std::string_view name, Keep keep) {
  const auto scope = writer_.builder.scope(name, Block::norm);
  const Value output = boundary_.output;
  const auto residual = output ? std::optional(boundary_.stream) : std::nullopt;
  const NormResult result = writer_.norm("weight", output ? output : boundary_.stream,
                                         writer_.config.hidden_size, 0, residual);
  if (residual) {
    boundary_.stream = result.sum;
    writer_.builder.keep(boundary_.stream, keep);
  }
  return result.output;
}

void LayerWriter::write(const LayerRange& range, const AttentionPlace& place) {
  const ModelConfig& config = writer_.config;
  for (int64_t layer = range.first; layer < range.end; ++layer) {
    writer_.unit = fmt::format("layers.{}", layer);
    const auto scope = writer_.builder.layer_scope(writer_.unit, static_cast<int>(layer));
    boundary_.output = attention_layer(writer_, normalised("attention_norm", Keep::layer), place);
    const Value x = normalised("feed_forward_norm", Keep::block);
    if (config.mixture() && layer >= config.dense_layers) {
      routed_.push_back(mixture_of_experts(writer_, x, writer_.experts));
      boundary_.output = routed_.back().output;
    } else {
      boundary_.output = feed_forward(writer_, "feed_forward", config.feed_forward_size, x);
    }
  }
}

Value LayerWriter::final_norm() {
  writer_.unit = "head";
  return normalised("norm", Keep::layer);
}

Value write_head_matrix(ModelWriter& writer) {
  const ModelConfig& config = writer.config;
  const auto scope = writer.builder.scope("head", Block::head);
  writer.unit = "head";
  return writer.matrix("weight", {config.vocabulary_size, config.hidden_size},
                       writer.over_tensor(0, config.vocabulary_size), ParameterRole::head);
}

}  // namespace tessera
