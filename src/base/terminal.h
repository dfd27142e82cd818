#pragma once

#include <cstdint>

namespace tessera {

/// Returns whether a line on standard error can be drawn over: standard error is a terminal, and
/// TERM is neither "dumb" nor empty.
bool stderr_can_redraw();

/// Returns whether text on standard error may have colours: stderr_can_redraw() is true, and
/// NO_COLOR is not set or is empty (no-color.org).
bool stderr_has_colours();

/// Returns the present number of columns of the terminal on standard error: COLUMNS if that is a
/// number above 0, else what the terminal says, else 80.
int64_t stderr_columns();

}  // namespace tessera
