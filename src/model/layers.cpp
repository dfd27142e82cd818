// The decoder layers between embedding and head. With h for the residual stream and o for the
// output of the last sublayer, LayerWriter::write() writes for each layer
//
//   h = h + o;  o = attention(norm(h));  h = h + o;  o = feed_forward(norm(h))
//
// The addition is part of the norm that follows it: a layer begins by adding the previous layer's
// output, and final_norm() adds the last one. Before the first layer there is no o. All of h, o and
// norm(h) are [tokens, hidden], and the tensor axis splits their positions; attention and
// feed_forward gather these inside. With residual scaling a *merge* replaces the addition:
// h = (h + bias_h) ⊙ scale_h + (o + bias_o) ⊙ scale_o.

#include "model/layers.h"

#include <utility>

#include "model/feed_forward.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
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

std::string layer_unit(int64_t layer) { return fmt::format("layers.{}", layer); }

Value embedding_table(ModelWriter& writer) {
  const auto scope = writer.builder.scope("embedding", Block::embedding);
  writer.unit = kEmbeddingUnit;
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

Embedded write_embedding(ModelWriter& writer, Value tokens) {
  const Value table = embedding_table(writer);
  const auto scope = writer.builder.scope("embedding", Block::embedding);
  const Value used = use_like(writer.builder, table, tokens);
  return {table, writer.scatter_positions(embedding(writer.builder, used, tokens))};
}

std::vector<Value> Boundary::values() const {
  std::vector<Value> result;
  for (const Value value : {stream, output, router, probability_sums, counts}) {
    if (value) result.push_back(value);
  }
  return result;
}

Boundary boundary_inputs(ModelWriter& writer, const std::string& name, const Shape& tokens,
                         int64_t layer) {
  const ModelConfig& config = writer.config;
  const auto input = [&](std::string_view part, int64_t width, DType dtype) {
    const Distribution distribution = writer.layout.stream(writer.mesh());
    const Shape whole{tokens[0], width};
    const Shape own =
        TensorPiece(writer.mesh(), distribution, whole, writer.builder.program().rank()).shape();
    return writer.builder.input(fmt::format("{}.{}", name, part), {own, dtype, distribution});
  };
  const bool is_wide = layer > 0 && config.residual_scaling;
  Boundary boundary;
  boundary.stream = input("stream", config.hidden_size, is_wide ? writer.wide() : writer.compute);
  if (layer == 0) return boundary;
  if (config.residual_scaling)
    boundary.output = input("output", config.hidden_size, writer.compute);
  const bool has_routers = layer > config.dense_layers && layer < config.layers;
  if (config.router == RouterKind::depth_averaged && has_routers) {
    boundary.router = input("router", config.router_size, writer.wide());
  }
  return boundary;
}

/// Declares the merge into the stream before a layer, and returns it. Its parameters are named
/// after the previous layer, but are in this layer's unit, so that a rank with this layer has them.
std::optional<LayerWriter::Merge> LayerWriter::merge_before(int64_t layer) {
  if (!writer_.config.residual_scaling) return std::nullopt;
  if (layer == 0) {
    const auto scope = writer_.builder.scope("embedding_scale", Block::norm);
    return Merge{{writer_.vector("scale", writer_.config.hidden_size, 1),
                  writer_.vector("bias", writer_.config.hidden_size, 0)},
                 std::nullopt};
  }
  const auto scope =
      writer_.builder.layer_scope(fmt::format("layers.{}", layer - 1), static_cast<int>(layer));
  return declare_merge("feed_forward_merge");
}

std::optional<LayerWriter::Merge> LayerWriter::declare_merge(std::string_view name) {
  if (!writer_.config.residual_scaling) return std::nullopt;
  const auto scope = writer_.builder.scope(name, Block::norm);
  const int64_t hidden = writer_.config.hidden_size;
  const Value output_scale = writer_.vector("output_scale", hidden, 1);
  const Value output_bias = writer_.vector("output_bias", hidden, 0);
  const Value residual_scale = writer_.vector("residual_scale", hidden, 1);
  return Merge{{output_scale, output_bias},
               ResidualScale{residual_scale, writer_.vector("residual_bias", hidden, 0)}};
}

Value LayerWriter::normalised(std::string_view name, Keep keep, const std::optional<Merge>& merge) {
  const auto scope = writer_.builder.scope(name, Block::norm);
  const int64_t hidden = writer_.config.hidden_size;
  const Value output = boundary_.output;
  const Value x = output ? output : boundary_.stream;
  const auto residual = output ? std::optional(boundary_.stream) : std::nullopt;
  Value result;
  if (merge) {
    const auto retyped = [&](const ResidualScale& scale) {
      return ResidualScale{use_like(writer_.builder, scale.scale, x),
                           use_like(writer_.builder, scale.bias, x)};
    };
    const ScaledResidual scaled =
        scaled_residual_norm(writer_.builder, x, retyped(merge->output_scale), residual,
                             residual ? std::optional(retyped(*merge->stream_scale)) : std::nullopt,
                             *writer_.norm_weight("weight", hidden, x), writer_.norm_options(0));
    boundary_.stream = scaled.stream;
    result = scaled.output;
  } else {
    const NormResult plain = std::exchange(begins_with_sum_, false)
                                 ? writer_.norm_of_sum("weight", x, hidden)
                                 : writer_.norm("weight", x, hidden, 0, residual);
    if (!plain.sum) return plain.output;
    boundary_.stream = plain.sum;
    result = plain.output;
  }
  writer_.builder.keep(boundary_.stream, keep);
  return result;
}

Value LayerWriter::feed_forward_of(int64_t layer, Value x) {
  const ModelConfig& config = writer_.config;
  if (!config.mixture() || layer < config.dense_layers) {
    return feed_forward(writer_, "feed_forward", config.feed_forward_size, x);
  }
  const auto previous_state = boundary_.router ? std::optional(boundary_.router) : std::nullopt;
  routed_.push_back(mixture_of_experts(writer_, x, writer_.experts, previous_state));
  if (routed_.back().router_state) {
    boundary_.router = *routed_.back().router_state;
    // The next layer begins with it, as with the stream.
    writer_.builder.keep(boundary_.router, Keep::layer);
  }
  return routed_.back().output;
}

void LayerWriter::write(const LayerRange& range, const AttentionInputs& inputs) {
  for (int64_t layer = range.first; layer < range.end; ++layer) {
    writer_.unit = layer_unit(layer);
    const std::optional<Merge> before = merge_before(layer);
    const auto scope = writer_.builder.layer_scope(writer_.unit, static_cast<int>(layer));
    const Value x = normalised("attention_norm", Keep::layer, before);
    boundary_.output = attention_layer(writer_, x, inputs);
    const std::optional<Merge> between = declare_merge("attention_merge");
    boundary_.output =
        feed_forward_of(layer, normalised("feed_forward_norm", Keep::block, between));
  }
  if (range.end == writer_.config.layers) boundary_.router = {};  // no router follows
}

Boundary LayerWriter::end() {
  if (boundary_.output && !writer_.config.residual_scaling) {
    const auto scope = writer_.builder.scope("boundary", Block::norm);
    const Value addends[] = {boundary_.output, boundary_.stream};
    boundary_.stream = add(writer_.builder, addends, writer_.compute);
    boundary_.output = {};
  }
  Boundary end = boundary_;
  end.probability_sums = end.counts = {};  // from the program before
  return end;
}

Value LayerWriter::final_norm() {
  writer_.unit = kHeadUnit;
  const std::optional<Merge> before = merge_before(writer_.config.layers);
  return normalised("norm", Keep::layer, before);
}

Value head_matrix(ModelWriter& writer, Value table) {
  const ModelConfig& config = writer.config;
  if (config.tied_head) return table ? table : embedding_table(writer);
  const auto scope = writer.builder.scope("head", Block::head);
  writer.unit = kHeadUnit;
  return writer.matrix("weight", {config.vocabulary_size, config.hidden_size},
                       writer.over_tensor(0, config.vocabulary_size), ParameterRole::head);
}

}  // namespace tessera
