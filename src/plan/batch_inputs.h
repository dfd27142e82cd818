#pragma once

#include <cstdint>
#include <optional>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"

namespace tessera {

/// The inputs of a program that a batch fills: of a chunk those that it has.
struct BatchInputs {
  explicit BatchInputs(const Chunk& chunk);
  explicit BatchInputs(const EvaluationProgram& evaluation);

  Value tokens, targets, positions;
  std::optional<Value> document_starts;
  int64_t vocabulary_size;  ///< of the model

  /// Copies a batch of the program's size in, right before the micro-batch's first action. Throws
  /// Error on a token outside the model's vocabulary.
  void fill(const Executor& executor, int program, int micro_batch, const Batch& batch) const;
};

/// Sets a scalar of f32 or f64.
void set_scalar(const Tensor& tensor, double value);

}  // namespace tessera
