#pragma once

#include <cstdint>

#include "program/program.h"

namespace tessera {

/// The extent that a dim has in the whole, where a rank has `own` elements of it.
int64_t logical_extent(const Mesh& mesh, const Distribution& distribution, int dim, int64_t own);

/// The row of the whole value at which the rows of the program's rank begin. Throws Error if they
/// are not consecutive rows of the whole, as those of a zigzag are not.
int64_t first_row(const Program& program, Value value);

}  // namespace tessera
