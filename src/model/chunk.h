#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/rematerialize.h"
#include "model/layers.h"
#include "model/model_config.h"
#include "model/parameter.h"

namespace tessera {

/// The size of the micro-batch that all ranks of a mesh compute together.
struct ProgramSize {
  int64_t sequences = 1;
  int64_t context = 0;         ///< tokens of one sequence
  bool document_mask = false;  ///< tokens attend within their document only
  /// True if the experts of every token are inputs of the program, and the routers do not choose.
  /// It serves to compare runs that round differently.
  bool pinned_choices = false;
};

/// The inputs that a program gets from a batch, i32 [tokens of this rank] each unless noted. An
/// input that the program does not have is null.
struct BatchValues {
  Value tokens;
  Value targets;                         ///< -1 for none
  Value positions;                       ///< index in the sequence
  std::optional<Value> document_starts;  ///< start of the token's document; for a document mask
  /// [tokens, k] each, by mixture layer: the experts of every token, if they are pinned.
  std::vector<Value> choices;
};
/// Declares these inputs, except `choices`, and returns them: `tokens` for a program with the
/// embedding, `targets` for one with the head. Throws Error, with the numbers, if the sequences or
/// positions do not divide over the ranks.
BatchValues declare_batch(Builder& builder, const ProgramSize& size,
                          const TokenDistribution& layout, bool embedding = true, bool head = true);

/// Writes and returns what the attention layers of a program share. The tokens are those of the
/// rank's coordinate on the context axis, gathered over the tensor axis.
AttentionInputs attention_inputs(ModelWriter& writer, const BatchValues& batch,
                                 const ProgramSize& size);

/// A sum over the micro-batches of a step, kept in f64. Programs add to it, and it is read after
/// the step. It is partial over the axes on which each rank adds its own part.
struct StepSum {
  std::string name;  ///< the name of the state
  Shape shape;
  Distribution distribution;
};

/// The sums that the passes of a step add to; none if the model, or the chunk, has no such loss.
struct StepSums {
  std::optional<StepSum> cross_entropy;  ///< over the target tokens
  std::optional<StepSum> balance;  ///< of a pooled loss: in the last chunk with mixture layers
  std::optional<StepSum> router_z;
  /// By mixture layer, [classes]: the experts, then the skip class if there is one.
  std::vector<StepSum> expert_tokens;

  /// Returns all sums: the losses, [1] each, and then `expert_tokens`.
  std::vector<StepSum> all() const;
};

/// What the parts of a step beside the passes know of a model, or of a chunk of it: the start, the
/// update, the results, a checkpoint.
struct ModelOutline {
  ParameterList parameters;
  StepSums sums;
  int64_t experts = 0;  ///< the number of experts of a mixture layer
  /// By mixture layer, if biases balance routers: the name of the biases' unit.
  std::vector<std::string> balance_units;
  double balance_rate = 0;  ///< see ModelConfig::balance_bias_rate
};

/// The part of a model that one program trains: some of its layers, with or without the parts
/// before the first layer and after the last one.
struct ChunkRange {
  LayerRange layers;
  bool embedding = true;
  bool head = true;  ///< the last norm, the output matrix and the loss
};
/// Returns the range of the whole model.
ChunkRange whole_model(const ModelConfig& config);
/// Returns whether the chunk of a range uses a parameter of the model.
bool uses(const ChunkRange& range, const ModelConfig& config, const ParameterSpec& parameter);

/// The forward and the backward pass of a chunk for one micro-batch, with their inputs and outputs.
/// A value that the chunk does not have is null.
struct Chunk {
  Program program;
  ModelOutline outline;

  BatchValues batch;  ///< tokens only with the embedding, targets only with the head

  /// Inputs from the previous chunk, and their gradients, which are outputs of the backward pass.
  Boundary boundary_in, boundary_in_gradients;
  /// Outputs for the next chunk, and their gradients, which are inputs of the backward pass. A
  /// value without a gradient has none on either side.
  Boundary boundary_out, boundary_out_gradients;

  /// The gradients of the losses, [1]: states that are set before a step, to the same value on all
  /// ranks. `target_seed`, for the loss, is one over the number of target tokens in the *global*
  /// batch. `token_seed`, for the router losses, is one over the number of all tokens in it. So no
  /// loss is a mean of means.
  Value target_seed;
  Value token_seed;

  /// f64 [1]: the number of the micro-batch in the run, counted from 1; an input, if a controller
  /// balances routers.
  Value balance_step;

  Value loss;        ///< [1]: the sum over this rank's target tokens, z-loss included; an output
  Value token_loss;  ///< [tokens]: cross-entropy; an output
  Value balance_loss, router_z_loss;  ///< [1]: sums over tokens, like the loss; outputs
};

/// Writes a rank's chunk, which recomputes the named blocks, and returns it. It gathers and reduces
/// `cut_units`, of which ranks keep pieces; null if there are none. Throws Error, with the numbers,
/// if the model or the batch does not divide over the mesh.
Chunk write_chunk(const ModelConfig& config, DType compute, const ProgramSize& size,
                  const Recompute& recompute, const ChunkRange& range,
                  const MeshRank& mesh_rank = {}, const ExpertLayout& experts = {},
                  const CutUnits* cut_units = nullptr);

/// Writes the whole model as one chunk and returns it.
Chunk write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                     const Recompute& recompute, const MeshRank& mesh_rank = {},
                     const ExpertLayout& experts = {});

}  // namespace tessera
