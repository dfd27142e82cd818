#pragma once

#include <cstdint>

#include "program/program.h"

namespace tessera {

/// Returns the first row that the program's rank holds, as an index in the whole value; 0 if dim 0
/// is whole or the rank has no rows. Throws Error if the rows have gaps (zigzag).
int64_t first_row(const Program& program, Value value);

}  // namespace tessera
