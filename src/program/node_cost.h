#pragma once

#include "program/program.h"

namespace tessera {

/// Returns the cost of one run of a program's node. A value whose number of rows is known only at
/// run time counts with the rows of an even load (see Rows).
Cost node_cost(const Program& program, const Node& node);

}  // namespace tessera
