#pragma once

#include <optional>
#include <vector>

#include "model/chunk.h"
#include "model/model_config.h"
#include "model/parameter.h"

namespace tessera {

/// The forward pass alone of a model or of a chunk of it, for evaluation. A value that the chunk
/// does not have is null.
struct EvaluationProgram {
  Program program;
  ParameterList parameters;
  BatchValues batch;
  Boundary boundary_in, boundary_out;  ///< as in Chunk
  Value token_loss;  ///< [tokens] of all ranks: cross-entropy, 0 without a target; an output
};
/// Writes an evaluation of a chunk. It gathers `cut_units` as write_chunk() does. Throws Error if
/// the model or the batch does not divide over the mesh.
EvaluationProgram write_evaluation(const ModelConfig& config, DType compute,
                                   const ProgramSize& size, const ChunkRange& range,
                                   const MeshRank& mesh_rank = {}, const ExpertLayout& experts = {},
                                   const CutUnits* cut_units = nullptr);
/// Writes an evaluation of the whole model.
EvaluationProgram write_evaluation(const ModelConfig& config, DType compute,
                                   const ProgramSize& size, const MeshRank& mesh_rank = {},
                                   const ExpertLayout& experts = {});

/// A program that continues one sequence by `tokens` tokens, with key-value caches as its states.
struct DecodingProgram {
  Program program;
  ParameterList parameters;
  Value tokens;          ///< i32 [tokens]
  Value positions;       ///< i32 [tokens]
  Value first_position;  ///< i32 [1]: that of the first of these tokens
  Value logits;          ///< [tokens, vocabulary], f32 (f64); an output
};
/// Writes a decoding program whose caches hold `capacity` positions.
DecodingProgram write_decoding(const ModelConfig& config, DType compute, int64_t tokens,
                               int64_t capacity);

/// Returns the parameters of a model, in the order of their declaration.
ParameterList model_parameters(const ModelConfig& config, DType compute);

/// Returns the number of parameters that one token uses: all, but of a layer's routed experts only
/// experts_per_token.
int64_t active_parameters(const ModelConfig& config, const std::vector<ParameterSpec>& parameters);

}  // namespace tessera
