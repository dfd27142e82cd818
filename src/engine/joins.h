#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace tessera {

/// The steps at which a segment's compute lane waits for its network lane. A step is the index of a
/// node in the segment, and both lists are by step.
struct Joins {
  /// The last step of the network lane that must be done before the step begins; -1 for none.
  std::vector<int> before;
  /// The last step during which the operands of the step may be in use. On the compute lane it is
  /// the step itself. The work of a step of the network lane goes on beside later steps, until one
  /// waits for it.
  std::vector<int> busy_until;
};

/// Returns the joins of nodes that run in this order. A node of the compute lane waits for a node
/// of the network lane if both use the same memory and one of them writes it. A node of the network
/// lane begins when all earlier nodes of the compute lane are done. The end of the segment waits
/// for everything.
Joins find_joins(const Program& program, std::span<const int> nodes);

}  // namespace tessera
