#pragma once

#include <optional>
#include <vector>

#include "engine/rematerialize.h"
#include "model/model_config.h"
#include "model/parameter.h"

namespace tessera {

/// A program that computes the loss of one micro-batch and what it takes and gives.
struct TrainingProgram {
  Program program;
  ParameterList parameters;

  Value tokens;                          ///< i32 [tokens]
  Value targets;                         ///< i32 [tokens], -1 for none
  Value positions;                       ///< i32 [tokens]: the place in the sequence
  std::optional<Value> document_starts;  ///< i32 [tokens]
  /// The gradients of the losses, [1], of a program with a backward pass: one over the number of
  /// target tokens of the *global* batch for the loss, one over the number of its tokens for the
  /// routers' losses. There is no mean of means.
  Value target_seed;
  Value token_seed;

  Value loss;        ///< [1]: the sum over target tokens, z-loss included
  Value token_loss;  ///< [tokens]: cross-entropy
  /// Sums over tokens, as the loss is; null where the model has none.
  Value balance_loss;
  Value router_z_loss;
  std::vector<Value> expert_counts;  ///< by layer, i32 [experts]
};

/// A program that continues one sequence by `tokens` tokens, with key-value caches as its states.
struct DecodingProgram {
  Program program;
  ParameterList parameters;
  Value tokens;     ///< i32 [tokens]
  Value positions;  ///< i32 [tokens]
  Value first;      ///< i32 [1]: the position of the first of them
  Value logits;     ///< [tokens, vocabulary], f32 (f64)
};

/// What a program works on at once.
struct ProgramSize {
  int64_t sequences = 1;
  int64_t context = 0;         ///< tokens of one sequence
  bool document_mask = false;  ///< tokens attend within their document only
};

/// Writes the forward pass alone.
TrainingProgram write_evaluation(const ModelConfig& config, DType compute, const ProgramSize& size);

/// Writes the forward pass and the backward pass of all losses, recomputing the named blocks.
TrainingProgram write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                               const Recompute& recompute);

/// Writes a decoding step; the caches hold `capacity` positions.
DecodingProgram write_decoding(const ModelConfig& config, DType compute, int64_t tokens,
                               int64_t capacity);

/// The parameters of a model, in the order of their declaration.
std::vector<ParameterSpec> model_parameters(const ModelConfig& config, DType compute);

/// Parameters that a token meets: all of a dense model, of experts only its share.
int64_t active_parameters(const ModelConfig& config, const std::vector<ParameterSpec>& parameters);

}  // namespace tessera
