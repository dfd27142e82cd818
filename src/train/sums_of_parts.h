#pragma once

#include <vector>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/chunk.h"

namespace tessera {

/// The sequences that data rank `part` of `parts` has of a batch of all.
Batch part_of(const Batch& batch, int part, int parts);

/// The gradients and sums of one rank that computes the parts of data ranks one after the other. It
/// adds them up as those ranks would (Llama 3, section 6.2): each part by itself, then the parts in
/// their order.
class SumsOfParts {
 public:
  /// The programs of a step, of which the first is the chunk's.
  SumsOfParts(const Executor& executor, const Chunk& chunk);

  /// Adds what the programs have after a part.
  void take();
  /// Gives the programs the sums of all parts.
  void give() const;

 private:
  std::vector<Tensor> own_;   // of the programs
  std::vector<Tensor> sums_;  // of the parts so far; none before the first
};

}  // namespace tessera
