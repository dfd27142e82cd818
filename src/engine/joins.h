#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Where a segment waits for what its network lane does. Both lists are by step, the position of a
/// node in the segment.
struct Joins {
  /// The last step of the network lane that must be done before this step begins; -1 for none.
  std::vector<int> before;
  /// The last step during which the operands of this step are in use. It is later than the step
  /// itself for a node of the network lane, whose work goes on until someone waits for it.
  std::vector<int> busy_until;
};

/// Finds the joins of nodes that run in this order. A node of the compute lane waits for the
/// network lane if it touches what a node there writes, or writes what a node there touches. A node
/// of the network lane begins when all earlier ones of the compute lane are done. The end of the
/// segment waits for everything.
Joins find_joins(const Program& program, std::span<const int> nodes);

}  // namespace tessera
