#include "model/model.h"

#include "engine/differentiate.h"
#include "model/attention_layer.h"
#include "model/feed_forward.h"
#include "model/mixture.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/rotary/rotary.h"
#include "ops/router/losses.h"

namespace tessera {
namespace {

/// The layers' results that the losses need.
struct Trunk {
  Value hidden;     ///< [tokens, hidden], normalised
  Value embedding;  ///< the table, for a tied head
  std::vector<RoutedLayer> routed;
};

std::optional<RotaryScaling> rotary_scaling(const ModelConfig& config) {
  if (config.rope_scaling == RopeScaling::none) return std::nullopt;
  return RotaryScaling{.factor = config.rope_factor,
                       .low_frequency_factor = config.rope_low_frequency_factor,
                       .high_frequency_factor = config.rope_high_frequency_factor,
                       .original_context = static_cast<double>(config.rope_original_context)};
}

Value table_of_angles(ModelWriter& writer, Value positions) {
  const auto scope = writer.builder.scope("rotary", Block::attention);
  const Value table = rotary_table(writer.builder, positions,
                                   {.channels = rotary_channels(writer.config),
                                    .theta = writer.config.rope_theta,
                                    .scaling = rotary_scaling(writer.config)},
                                   writer.wide());
  writer.builder.keep(table, Keep::layer);  // all layers share it, whatever they recompute
  return table;
}

/// Pre-norm decoder: each sublayer reads a norm of the residual stream, and the norm that follows
/// adds the sublayer's output to the stream.
Trunk write_trunk(ModelWriter& writer, Value tokens, const AttentionPlace& place) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  Trunk trunk;
  Value output;  // of the last sublayer, not yet in the stream
  Value stream;  // [tokens, hidden]
  {
    const auto scope = builder.scope("embedding", Block::embedding);
    writer.unit = "embedding";
    trunk.embedding = writer.matrix("weight", {config.vocabulary_size, config.hidden_size},
                                    ParameterRole::embedding);
    stream = embedding(builder, trunk.embedding, tokens);
  }
  const auto normalised = [&](std::string_view name, Keep keep) {
    const auto scope = builder.scope(name, Block::norm);
    const auto residual = output ? std::optional(stream) : std::nullopt;
    const NormResult result =
        writer.norm("weight", output ? output : stream, config.hidden_size, 0, residual);
    if (residual) {
      stream = result.sum;
      builder.keep(stream, keep);
    }
    return result.output;
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    writer.unit = fmt::format("layers.{}", layer);
    const auto scope = builder.layer_scope(writer.unit, layer);
    output = attention_layer(writer, normalised("attention_norm", Keep::layer), place);
    const Value x = normalised("feed_forward_norm", Keep::block);
    if (config.mixture() && layer >= config.dense_layers) {
      trunk.routed.push_back(mixture_of_experts(writer, x));
      output = trunk.routed.back().output;
    } else {
      output = feed_forward(writer, "feed_forward", config.feed_forward_size, x);
    }
  }
  writer.unit = "head";
  trunk.hidden = normalised("norm", Keep::layer);
  return trunk;
}

Value write_head(ModelWriter& writer, const Trunk& trunk) {
  const ModelConfig& config = writer.config;
  if (config.tied_head) return trunk.embedding;
  return writer.matrix("weight", {config.vocabulary_size, config.hidden_size}, ParameterRole::head);
}

void write_router_losses(ModelWriter& writer, const Trunk& trunk, TrainingProgram& training) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("router_losses", Block::router);
  std::vector<Value> probabilities;
  std::vector<Value> z_losses;
  std::vector<Value> balance_losses;
  for (const RoutedLayer& layer : trunk.routed) {
    probabilities.push_back(layer.probabilities);
    training.expert_counts.push_back(layer.counts);
    builder.output(layer.counts);
    if (config.router_z_coefficient > 0) {
      z_losses.push_back(router_z_loss(builder, layer.logits, config.router_z_coefficient));
    }
  }
  if (config.balance_coefficient > 0) {
    const size_t each = config.balance_form == BalanceForm::pooled ? trunk.routed.size() : 1;
    for (size_t i = 0; i < trunk.routed.size(); i += each) {
      balance_losses.push_back(load_balance_loss(builder, std::span(probabilities).subspan(i, each),
                                                 std::span(training.expert_counts).subspan(i, each),
                                                 config.balance_coefficient,
                                                 config.experts_per_token, config.balance_form));
    }
  }
  for (const auto& [parts, total] : {std::pair(&balance_losses, &training.balance_loss),
                                     std::pair(&z_losses, &training.router_z_loss)}) {
    if (parts->empty()) continue;
    *total = add(builder, *parts, writer.wide());
    builder.output(*total);
  }
}

void write_head_loss(ModelWriter& writer, const Trunk& trunk, TrainingProgram& training) {
  const auto scope = writer.builder.scope("head", Block::head);
  const Value weight = write_head(writer, trunk);
  const double z = writer.config.z_loss_coefficient;
  const CrossEntropy result =
      training.target_seed
          ? linear_cross_entropy_with_gradient(writer.builder, trunk.hidden, weight,
                                               training.targets, training.target_seed, z)
          : linear_cross_entropy(writer.builder, trunk.hidden, weight, training.targets, z);
  training.loss = result.loss;
  training.token_loss = result.token_loss;
  writer.builder.output(training.loss);
  writer.builder.output(training.token_loss);
}

void write_forward(Builder& builder, const ModelConfig& config, DType compute,
                   const ProgramSize& size, TrainingProgram& training) {
  ModelWriter writer{builder, config, compute, {}, {}};
  const Spec ids{{size.sequences * size.context}, DType::i32, {}};
  training.tokens = builder.input("tokens", ids);
  training.targets = builder.input("targets", ids);
  training.positions = builder.input("positions", ids);
  if (size.document_mask) training.document_starts = builder.input("document_starts", ids);

  const AttentionPlace place{.sequence = size.context,
                             .rotary_table = table_of_angles(writer, training.positions),
                             .document_starts = training.document_starts,
                             .cache_position = {}};
  const Trunk trunk = write_trunk(writer, training.tokens, place);
  write_router_losses(writer, trunk, training);
  write_head_loss(writer, trunk, training);
  training.parameters = std::move(writer.parameters);
}

}  // namespace

TrainingProgram write_evaluation(const ModelConfig& config, DType compute,
                                 const ProgramSize& size) {
  TrainingProgram evaluation;
  Builder builder(evaluation.program);
  write_forward(builder, config, compute, size, evaluation);
  return evaluation;
}

TrainingProgram write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                               const Recompute& recompute) {
  TrainingProgram training;
  Builder builder(training.program);
  const Spec scalar{{1}, accumulation_dtype(compute), {}};
  training.target_seed = builder.input("target_seed", scalar);
  training.token_seed = builder.input("token_seed", scalar);
  write_forward(builder, config, compute, size, training);
  std::vector<Seed> seeds{{training.loss, training.target_seed}};
  for (const Value loss : {training.balance_loss, training.router_z_loss}) {
    if (loss) seeds.push_back({loss, training.token_seed});
  }
  differentiate(builder, seeds);
  rematerialize(builder, recompute);
  return training;
}

DecodingProgram write_decoding(const ModelConfig& config, DType compute, int64_t tokens,
                               int64_t capacity) {
  DecodingProgram decoding;
  Builder builder(decoding.program);
  ModelWriter writer{builder, config, compute, {}, {}};
  decoding.tokens = builder.input("tokens", {{tokens}, DType::i32, {}});
  decoding.positions = builder.input("positions", {{tokens}, DType::i32, {}});
  decoding.first = builder.input("first", {{1}, DType::i32, {}});
  const AttentionPlace place{.sequence = tokens,
                             .rotary_table = table_of_angles(writer, decoding.positions),
                             .document_starts = {},
                             .cache_position = decoding.first,
                             .capacity = capacity};
  const Trunk trunk = write_trunk(writer, decoding.tokens, place);
  const auto scope = builder.scope("head", Block::head);
  decoding.logits = linear(builder, trunk.hidden, write_head(writer, trunk), writer.wide());
  builder.output(decoding.logits);
  decoding.parameters = std::move(writer.parameters);
  return decoding;
}

std::vector<ParameterSpec> model_parameters(const ModelConfig& config, DType compute) {
  const ProgramSize smallest{.sequences = 1, .context = 2};
  return write_evaluation(config, compute, smallest).parameters.specs();
}

int64_t active_parameters(const ModelConfig& config, const std::vector<ParameterSpec>& parameters) {
  int64_t active = 0;
  for (const ParameterSpec& parameter : parameters) {
    const int64_t elements = parameter.shape.elements();
    active += parameter.role == ParameterRole::expert
                  ? elements / config.experts * config.experts_per_token
                  : elements;
  }
  return active;
}

}  // namespace tessera
