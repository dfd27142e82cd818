#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/recompute.h"
#include "model/layers.h"
#include "model/model_config.h"
#include "model/parameter.h"

namespace tessera {

/// The size of what the ranks of a mesh work on at once: a micro-batch of all of them.
struct ProgramSize {
  int64_t sequences = 1;
  int64_t context = 0;         ///< tokens of one sequence
  bool document_mask = false;  ///< tokens attend within their document only
  /// Whether the experts of every token are inputs, and not the routers' choice. For comparing runs
  /// that round differently.
  bool pinned_choices = false;
};

/// The tokens of one sequence that attention and dense layers of a rank see: those of its place on
/// the context axis, gathered over the tensor axis.
int64_t own_context(const Mesh& mesh, const ProgramSize& size);

/// The inputs that a batch gives a program, each i32 [tokens], of this rank. One that the program
/// does not have is null.
struct BatchValues {
  Value tokens;
  Value targets;                         ///< -1 for none
  Value positions;                       ///< the place in the sequence
  std::optional<Value> document_starts;  ///< start of the token's document; for a document mask
  /// [tokens, k] each, by mixture layer: the experts of every token, if they are pinned.
  std::vector<Value> choices;
};
/// Declares these inputs: `tokens` for a program with the embedding, `targets` for one with the
/// head. Throws Error, with the numbers, if the sequences or positions do not divide over the
/// ranks.
BatchValues declare_batch(Builder& builder, const ProgramSize& size,
                          const TokenDistribution& layout, bool embedding = true, bool head = true);

/// A sum over the micro-batches of a step, kept in f64. Programs add to it, and it is read after
/// the step. It is partial over the axes on which each rank adds its own part.
struct StepSum {
  std::string name;  ///< of the state
  Shape shape;
  Distribution distribution;
};

/// The part of a model that one program trains: some of its layers, with or without the parts
/// before the first layer and after the last one.
struct ChunkRange {
  LayerRange layers;
  bool embedding = true;
  bool head = true;  ///< the last norm, the output matrix and the loss
};
/// The range of the whole model.
ChunkRange whole_model(const ModelConfig& config);

/// The forward and the backward pass of a chunk for one micro-batch, with their inputs and outputs.
/// A value that the chunk does not have is null.
struct Chunk {
  Program program;
  ParameterList parameters;

  BatchValues batch;  ///< tokens only with the embedding, targets only with the head

  /// Inputs from the chunk before, and their gradients, which are outputs of the backward pass.
  Boundary boundary_in, of_boundary_in;
  /// Outputs for the next chunk, and their gradients, which are inputs of the backward pass.
  Boundary boundary_out, of_boundary_out;

  /// The gradients of the losses, [1]: states that are set before a step, to the same on all ranks.
  /// For the loss it is one over the number of target tokens in the *global* batch. For the router
  /// losses it is one over the number of all its tokens. There is no mean of means.
  Value target_seed;
  Value token_seed;

  /// f64 [1]: the number of the micro-batch in the run, counted from 1; a state that is set before
  /// each forward pass, if a controller balances routers.
  Value balance_step;

  Value loss;        ///< [1]: the sum over own target tokens, z-loss included; an output
  Value token_loss;  ///< [tokens]: cross-entropy; an output
  Value balance_loss, router_z_loss;  ///< [1]: sums over tokens, like the loss; outputs

  /// Sums that each forward pass adds to; none if the chunk has no such loss.
  std::optional<StepSum> cross_entropy_sum;  ///< of the target tokens
  std::optional<StepSum> balance_sum;
  std::optional<StepSum> router_z_sum;
  /// By mixture layer, [classes]: the experts, then the skip class if there is one.
  std::vector<StepSum> expert_tokens;
  int64_t experts = 0;  ///< of a mixture layer
  /// By mixture layer, if routers are balanced by biases: the unit of these.
  std::vector<std::string> balance_units;
  double balance_rate = 0;  ///< see ModelConfig::balance_bias_rate

  /// All of these sums.
  std::vector<StepSum> sums() const;
  /// Those of the losses, [1] each.
  std::vector<StepSum> loss_sums() const;
};

/// Writes a rank's chunk that recomputes the named blocks. Throws InternalError if the balance loss
/// pools all layers but the chunk does not have all of them. Throws Error, with the numbers, if the
/// model or the batch does not divide over the mesh.
Chunk write_chunk(const ModelConfig& config, DType compute, const ProgramSize& size,
                  const Recompute& recompute, const ChunkRange& range, const MeshRank& place = {},
                  const ExpertLayout& experts = {});

/// Writes the whole model as one chunk.
Chunk write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                     const Recompute& recompute, const MeshRank& place = {},
                     const ExpertLayout& experts = {});

}  // namespace tessera
