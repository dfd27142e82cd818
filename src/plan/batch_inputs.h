#pragma once

#include <cstdint>
#include <span>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/chunk.h"

namespace tessera {

/// The inputs of a program that a batch fills. A chunk (model/chunk.h) may have only some of them.
/// Pinned choices are not filled.
struct BatchInputs {
  BatchValues values;
  int64_t vocabulary_size;  ///< of the model

  /// Writes this rank's pieces of a micro-batch into the inputs. `batch` is the part of it that has
  /// the rank's sequences. Call it right before the micro-batch's first action. Throws Error on a
  /// token outside the model's vocabulary.
  void fill(Executor& executor, int program, int micro_batch, const Batch& batch) const;
};

/// Returns the number of tokens in the vocabulary of a model, whose embedding must be among the
/// parameters.
int64_t vocabulary_size_of(const ParameterList& parameters);

/// Writes a rank's piece of an i32 tensor of shape `whole` into a program's value, whose
/// distribution says which elements are the piece. `numbers` are the elements of the whole tensor
/// from `first` on; they must include the piece.
void write_piece(Executor& executor, int program, int micro_batch, Value to, const Shape& whole,
                 std::span<const int32_t> numbers, int64_t first = 0);

/// Writes a value into an executor's scalar tensor of f32 or f64.
void write_scalar(Executor& executor, const Tensor& tensor, double value);

}  // namespace tessera
