#pragma once

#include <vector>

#include "comm/wire_format.h"
#include "data/loader.h"
#include "model/chunk.h"
#include "state/parameter_store.h"

namespace tessera {

/// Returns the rows that data rank `part` of `parts` gets of a whole batch: the ranks divide its
/// rows in order. The target count is that of these rows alone.
Batch part_of_batch(const Batch& batch, int part, int parts);

/// The order in which the data ranks of a layout sum their gradients, and their wire format.
struct SumOrder {
  /// The sizes of the levels of the data axis, in the order of the sums: the innermost level first,
  /// for example the ranks of a node. If empty, all parts are added one after the other.
  std::vector<int> levels = {};
  /// If bf16, f32 gradients are rounded to bf16 before each sum.
  WireFormat wire = WireFormat::fp32;
  /// True if the last sum is rounded too, because ranks send it on. Pieces of a sum are not.
  bool rounds_total = true;
};

/// Adds up gradients and step sums (StepSum, such as losses) with the bits of a data-parallel
/// layout (Llama 3, section 6.2). One rank computes the parts of all data ranks in turn. Their
/// gradients are added in the ranks' order: first within each innermost group, such as a node, then
/// over the sums of groups, level by level. They are rounded wherever ranks would send them.
///
/// For each part, run the programs from zero gradients and sums, then call add_part(). After the
/// last part, call write_back().
class SumsOfParts {
 public:
  /// Uses the memory of the gradients and sums to which the passes add.
  SumsOfParts(const ParameterStore& store, const StepSums& sums, SumOrder order);

  /// Adds the gradients and sums that the programs have after one part. Rounds the gradients in
  /// place: nothing reads them again, because the next part begins with zeros.
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

  /// Adds to the sums of a level. Complete sums are rounded and become one addend of the next
  /// level, and this level begins anew: the levels work like the digits of a counter.
  void add_gradients(const std::vector<Tensor>& addends, size_t level);
  /// Rounds f32 tensors in place as a message in bf16 does. Changes nothing if the wire is fp32.
  void round_for_wire(const std::vector<Tensor>& tensors) const;

  SumOrder order_;
  std::vector<Tensor> gradients_;    // the programs' main gradients, by parameter
  std::vector<LevelSums> levels_;    // the gradients' sums, innermost level first
  std::vector<Tensor> step_sums_;    // the programs' step sums, such as losses
  std::vector<Tensor> step_totals_;  // the step sums of all parts so far
};

}  // namespace tessera
