#pragma once

#include <vector>

#include "comm/wire_format.h"
#include "data/loader.h"
#include "model/chunk.h"
#include "state/parameter_store.h"

namespace tessera {

/// Returns the sequences of data rank `part`, of `parts`, in a batch of all data ranks.
Batch part_of_batch(const Batch& batch, int part, int parts);

/// The order in which the data ranks of a layout sum their gradients, and their wire format.
struct SumOrder {
  /// The sizes of the levels of the data axis, in the order of the sums: the innermost level first,
  /// for example the ranks of a node. If empty, all parts are added one after the other.
  std::vector<int> levels = {};
  /// If bf16, f32 gradients are rounded to bf16 before each sum and after it.
  WireFormat wire = WireFormat::fp32;
};

/// Sums of gradients and of step sums (StepSum) over the parts of a batch, for one rank that
/// computes the parts of all data ranks one after the other. It adds each part by itself, then the
/// parts in their order, level by level, and rounds gradients where ranks would send them. So it
/// gets the same bits as those ranks (Llama 3, section 6.2). For each part, run the programs from
/// zero gradients and sums, then call add_part(). After the last part, call write_back().
class SumsOfParts {
 public:
  /// Takes the state that the passes of the chunk add to.
  SumsOfParts(const ParameterStore& store, const Chunk& chunk, SumOrder order);

  /// Adds the gradients and sums that the programs have after one part.
  void add_part();
  /// Overwrites the programs' gradients and sums with those of all parts.
  void write_back() const;

 private:
  /// The sums in progress at one level.
  struct LevelSums {
    int expected = 0;  ///< the number of addends of a finished sum; 0 at the outermost level
    int added = 0;     ///< the number of addends so far
    std::vector<Tensor> sums;  ///< by parameter
  };

  /// Adds to the sums of a level. A finished sum is rounded and added to the next level.
  void add_gradients(const std::vector<Tensor>& addends, size_t level);
  /// Rounds tensors in place to the values that they have after they were sent.
  void round_for_wire(const std::vector<Tensor>& tensors) const;

  SumOrder order_;
  std::vector<Tensor> gradients_;    // the programs' main gradients, by parameter
  std::vector<LevelSums> levels_;    // the gradients' sums, innermost level first
  std::vector<Tensor> step_sums_;    // the programs' step sums, such as losses
  std::vector<Tensor> step_totals_;  // the step sums of all parts so far
};

}  // namespace tessera
