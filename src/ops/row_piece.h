#pragma once

#include <cstdint>

#include "program/program.h"

namespace tessera {

/// Returns the first row that the program's rank holds, as an index in the whole value. Throws
/// Error if the rank's rows are not consecutive, as in a zigzag distribution.
int64_t first_row(const Program& program, Value value);

}  // namespace tessera
