#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace tessera {

/// The steps at which a segment waits for its network lane. Both lists are by step, the index of a
/// node in the segment.
struct Joins {
  /// The last step of the network lane that must be done before this step begins; -1 for none.
  std::vector<int> before;
  /// The last step during which the operands of this step are in use. For a node of the network
  /// lane it is later than the step itself, because its work goes on until another step waits for
  /// it.
  std::vector<int> busy_until;
};

/// Returns the joins of nodes that run in this order. A node of the compute lane waits for the
/// network lane if it reads or writes what a node there writes, or writes what a node there reads.
/// A node of the network lane begins when all earlier nodes of the compute lane are done. The end
/// of the segment waits for everything.
Joins find_joins(const Program& program, std::span<const int> nodes);

}  // namespace tessera
