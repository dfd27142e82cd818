#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Checks what the memory of values holds when nodes read it, given the nodes in the order in which
/// they run. Builder checks the same while it writes a program. This finds what was left out,
/// repeated or moved afterwards. Throws InternalError, which names the value and the node, if
///  - a node reads a computed value that no earlier node makes, such as the weights of a unit
///    without its gather;
///  - a node reads addends after their sum over ranks was taken in their memory, as a second sum of
///    them does;
///  - a node reads a sum over ranks that was not taken, or nothing uses one that was;
///  - an operation changes a value twice with the same operands;
///  - two computing nodes of the update change the same elements of a weight or a state;
///  - the update changes a piece of the weights that a rank has, and no later node gathers them.
void require_sound(const Program& program, std::span<const std::vector<int>> segments);

}  // namespace tessera
