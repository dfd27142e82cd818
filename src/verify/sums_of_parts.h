#pragma once

#include <vector>

#include "comm/wire_format.h"
#include "data/loader.h"
#include "engine/executor.h"
#include "model/chunk.h"

namespace tessera {

/// The sequences that data rank `part` of `parts` has of a batch of all.
Batch part_of(const Batch& batch, int part, int parts);

/// The order in which ranks sum their gradients, and how these travel.
struct PartOrder {
  /// The levels of the data axis, innermost first. If there are none, the parts are added one after
  /// the other.
  std::vector<int> levels = {};
  /// In bf16, f32 is rounded before each sum and after it.
  WireFormat wire = WireFormat::fp32;
};

/// The gradients and sums of one rank that computes the parts of data ranks one after the other. It
/// adds them up as those ranks would (Llama 3, section 6.2): each part by itself, then the parts in
/// their order. Gradients are added within nodes first, where the order has levels, and rounded
/// where they would travel so.
class SumsOfParts {
 public:
  /// The programs of a step, of which the first is the chunk's.
  SumsOfParts(const Executor& executor, const Chunk& chunk, PartOrder order);

  /// Adds what the programs have after a part.
  void take();
  /// Gives the programs the sums of all parts.
  void give() const;

 private:
  /// The sum of the addends of one level so far.
  struct LevelSum {
    int most = 0;  ///< addends; 0: no level is outside of this one
    int taken = 0;
    std::vector<Tensor> sums;
  };

  void take_gradients(const std::vector<Tensor>& addends, size_t level);
  /// The tensors as they travel.
  void round(const std::vector<Tensor>& tensors) const;

  PartOrder order_;
  std::vector<Tensor> gradients_;  // of the programs
  std::vector<LevelSum> levels_;   // of the gradients
  std::vector<Tensor> sums_;       // of the programs, beside the gradients
  std::vector<Tensor> sums_so_far_;
};

}  // namespace tessera
