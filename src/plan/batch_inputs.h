#pragma once

#include <cstdint>
#include <span>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/chunk.h"

namespace tessera {

/// The inputs of a program that a batch fills. A chunk may have only some of them.
struct BatchInputs {
  /// Takes the vocabulary size from the embedding, which must be among the parameters.
  BatchInputs(const BatchValues& batch, const ParameterList& parameters);

  BatchValues values;
  int64_t vocabulary_size;  ///< of the model

  /// Writes a rank's piece of a batch into the inputs. The batch and its other parts have the
  /// program's size together, and the rank's sequences are in it. Call it right before the
  /// micro-batch's first action. Throws Error on a token outside the model's vocabulary.
  void fill(Executor& executor, int program, int micro_batch, const Batch& batch) const;
};

/// Writes a rank's piece of a value of all ranks into a program's value, which lies as its type
/// says. `numbers` are those of the whole, of shape `whole`, from its element `first` on; the
/// rank's are among them.
void write_piece(Executor& executor, int program, int micro_batch, Value to, const Shape& whole,
                 std::span<const int32_t> numbers, int64_t first = 0);

/// Writes a value into an executor's scalar tensor of f32 or f64.
void write_scalar(Executor& executor, const Tensor& tensor, double value);

}  // namespace tessera
