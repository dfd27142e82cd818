#pragma once

#include <cstdint>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"

namespace tessera {

/// The inputs of a training program, in memory from the pool.
class ProgramInputs {
 public:
  /// Takes the memory and binds it in `frame`.
  ProgramInputs(const TrainingProgram& training, MemoryPool& pool, Frame& frame);
  /// Copies a batch of the program's size in. Throws Error on a token outside the model's
  /// vocabulary.
  void fill(const Batch& batch) const;
  /// Sets the gradients of the losses: one over each count (see TrainingProgram).
  void set_seeds(int64_t global_targets, int64_t global_tokens) const;

 private:
  int64_t vocabulary_size_;
  Tensor tokens_, targets_, positions_, document_starts_, target_seed_, token_seed_;
};

}  // namespace tessera
