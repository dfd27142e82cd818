#include "model/model.h"

#include "model/layers.h"
#include "ops/collective/convert.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"

namespace tessera {
namespace {

/// The output of a chunk's layers: up to the last norm, and the head's matrix, or the boundary to
/// the next chunk.
struct Trunk {
  Value hidden;  ///< [tokens, hidden]
  Value head;    ///< [vocabulary, hidden]
  Boundary boundary;
};

/// Writes the trunk. `hidden` has all positions: the tensor axis splits only the head's vocabulary.
Trunk write_trunk(ModelWriter& writer, Value tokens, const Boundary& boundary_in,
                  const AttentionInputs& inputs, const ChunkRange& range) {
  std::optional<Embedded> embedded;
  if (range.embedding) embedded = write_embedding(writer, tokens);
  LayerWriter layers = embedded ? LayerWriter(writer, embedded->stream)
                                : LayerWriter(writer, boundary_in, range.layers.first);
  layers.write(range.layers, inputs);
  if (!range.head) return {.hidden = {}, .head = {}, .boundary = layers.end()};
  const Value hidden = writer.gather_positions(layers.final_norm());
  return {.hidden = hidden,
          .head = head_matrix(writer, embedded ? embedded->table : Value{}),
          .boundary = {}};
}

/// Gathers a value over the axes that split its tokens. Returns the value for all tokens.
Value gathered_tokens(Builder& builder, Value own) {
  for (const Axis axis : builder.spec(own).distribution.joining_order(0)) {
    own = convert(builder, own, axis, Placement::sharded, invariant());
  }
  return own;
}

}  // namespace

EvaluationProgram write_evaluation(const ModelConfig& config, DType compute,
                                   const ProgramSize& size, const ChunkRange& range,
                                   const MeshRank& mesh_rank, const ExpertLayout& experts,
                                   const CutUnits* cut_units) {
  EvaluationProgram evaluation{.program = Program(mesh_rank.mesh, mesh_rank.rank)};
  Builder builder(evaluation.program);
  ModelWriter writer{.builder = builder,
                     .config = config,
                     .compute = compute,
                     .layout = distribute_tokens(mesh_rank.mesh, size.sequences),
                     .experts = experts,
                     .parameters = ParameterList(cut_units, /*trains=*/false)};
  evaluation.batch = declare_batch(builder, size, writer.layout, range.embedding, range.head);
  if (!range.embedding) {
    evaluation.boundary_in =
        boundary_inputs(writer, "boundary_in", {size.sequences * size.context}, range.layers.first);
  }
  const AttentionInputs inputs = attention_inputs(writer, evaluation.batch, size);
  const Trunk trunk =
      write_trunk(writer, evaluation.batch.tokens, evaluation.boundary_in, inputs, range);
  if (range.head) {
    const auto scope = builder.scope("head", Block::head);
    const Value head = use_like(builder, trunk.head, evaluation.batch.targets);
    const Value own = linear_cross_entropy(builder, trunk.hidden, head, evaluation.batch.targets,
                                           config.z_loss_coefficient)
                          .token_loss;
    evaluation.token_loss = gathered_tokens(builder, own);
    builder.output(evaluation.token_loss);
  } else {
    evaluation.boundary_out = trunk.boundary;
    for (const Value value : trunk.boundary.values()) builder.output(value);
  }
  evaluation.parameters = std::move(writer.parameters);
  return evaluation;
}

EvaluationProgram write_evaluation(const ModelConfig& config, DType compute,
                                   const ProgramSize& size, const MeshRank& mesh_rank,
                                   const ExpertLayout& experts) {
  return write_evaluation(config, compute, size, whole_model(config), mesh_rank, experts);
}

DecodingProgram write_decoding(const ModelConfig& config, DType compute, int64_t tokens,
                               int64_t capacity) {
  DecodingProgram decoding;
  Builder builder(decoding.program);
  ModelWriter writer{.builder = builder,
                     .config = config,
                     .compute = compute,
                     .layout = distribute_tokens(decoding.program.mesh(), /*sequences=*/1)};
  const Spec ids{{tokens}, DType::i32, writer.layout.tokens};
  decoding.tokens = builder.input("tokens", ids);
  decoding.positions = builder.input("positions", ids);
  decoding.first_position = builder.input("first", {{1}, DType::i32, {}});
  const AttentionInputs inputs{.sequence = tokens,
                               .positions = decoding.positions,
                               .key_positions = {},
                               .rotary_table = table_of_angles(writer, decoding.positions),
                               .document_starts = {},
                               .cache_position = decoding.first_position,
                               .capacity = capacity};
  const Trunk trunk = write_trunk(writer, decoding.tokens, {}, inputs, whole_model(config));
  const auto scope = builder.scope("head", Block::head);
  decoding.logits =
      linear(builder, trunk.hidden, use_like(builder, trunk.head, trunk.hidden), writer.wide());
  builder.output(decoding.logits);
  decoding.parameters = std::move(writer.parameters);
  return decoding;
}

ParameterList model_parameters(const ModelConfig& config, DType compute) {
  const ProgramSize smallest{.sequences = 1, .context = 2};  // parameters do not depend on the size
  return write_evaluation(config, compute, smallest).parameters;
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
