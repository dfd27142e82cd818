#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/recompute.h"
#include "model/layers.h"
#include "model/model_config.h"
#include "model/parameter.h"

namespace tessera {

/// What a program works on at once.
struct ProgramSize {
  int64_t sequences = 1;
  int64_t context = 0;         ///< tokens of one sequence
  bool document_mask = false;  ///< tokens attend within their document only
};

/// What a batch gives a program: inputs, each i32 [tokens]. Null where a program has no such thing.
struct BatchValues {
  Value tokens;
  Value targets;                         ///< -1 for none
  Value positions;                       ///< the place in the sequence
  std::optional<Value> document_starts;  ///< where the token's document begins; of a document mask
};
/// Declares them; `tokens` for a program with the embedding, `targets` for one with the head.
BatchValues declare_batch(Builder& builder, const ProgramSize& size, bool embedding = true,
                          bool head = true);

/// A sum over the micro-batches of a step, kept in f64: programs add to it, and it is read after
/// the step.
struct StepSum {
  std::string name;  ///< of the state
  Shape shape;
};

/// The part of a model that one program trains: some of its layers, with or without what stands
/// before the first and behind the last.
struct ChunkRange {
  LayerRange layers;
  bool embedding = true;
  bool head = true;  ///< the last norm, the output matrix and the loss
};
/// All of it.
ChunkRange whole_model(const ModelConfig& config);

/// The forward and the backward pass of a chunk, for one micro-batch, and what they take and give.
/// Null where the chunk has no such thing.
struct Chunk {
  Program program;
  ParameterList parameters;

  BatchValues batch;  ///< tokens of a chunk with the embedding, targets of one with the head

  /// From the chunk before, inputs; and their gradients, outputs of the backward pass.
  Boundary boundary_in, of_boundary_in;
  /// For the chunk behind, outputs; and their gradients, inputs of the backward pass.
  Boundary boundary_out, of_boundary_out;

  /// The gradients of the losses, [1], states that are set before a step: one over the number of
  /// target tokens of the *global* batch for the loss, one over the number of its tokens for the
  /// routers' losses. There is no mean of means.
  Value target_seed;
  Value token_seed;

  Value loss;        ///< [1]: the sum over target tokens, z-loss included; an output
  Value token_loss;  ///< [tokens]: cross-entropy; an output
  Value balance_loss, router_z_loss;  ///< [1]: sums over tokens, as the loss is; outputs

  /// Added to in each forward pass; none where the model has no such loss.
  std::optional<StepSum> cross_entropy_sum;  ///< of the target tokens
  std::optional<StepSum> balance_sum;
  std::optional<StepSum> router_z_sum;
  std::vector<StepSum> expert_tokens;  ///< by mixture layer, [experts]

  /// All of these.
  std::vector<StepSum> sums() const;
  /// Those of losses, [1] each.
  std::vector<StepSum> loss_sums() const;
};

/// Writes a chunk, recomputing the named blocks. Throws InternalError for a balance loss that pools
/// all layers in a chunk that has not all of them.
Chunk write_chunk(const ModelConfig& config, DType compute, const ProgramSize& size,
                  const Recompute& recompute, const ChunkRange& range);

/// The one chunk that is the whole model.
Chunk write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                     const Recompute& recompute);

}  // namespace tessera
