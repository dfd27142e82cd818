#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace tessera {

/// The steps of a segment (engine/action.h) at which the compute lane waits for the network lane
/// (see Lane). A step is the index of a node in the segment, and both lists are by step.
struct Joins {
  /// The last step of the network lane that must be done before the step begins; -1 for none.
  std::vector<int> before;
  /// The last step during which the operands of the step may be in use. On the compute lane it is
  /// the step itself. The work of the network lane goes on until a later step waits for it.
  std::vector<int> busy_until;
};

/// Returns the joins of nodes that run in this order. A node of the compute lane waits for a node
/// of the network lane if both use the same memory and one of them writes it. A node of the network
/// lane begins after all earlier nodes of the compute lane. The end of the segment waits for
/// everything.
Joins find_joins(const Program& program, std::span<const int> nodes);

}  // namespace tessera
