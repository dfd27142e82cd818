#pragma once

#include <cstdint>

#include "program/program.h"

namespace tessera {

/// The row of the whole value at which the rows of the program's rank begin. Throws Error if they
/// are not consecutive rows of the whole, as those of a zigzag are not.
int64_t first_row(const Program& program, Value value);

}  // namespace tessera
