#pragma once

#include <cstdio>

namespace tessera {

/// Waits for this program's turn. Two programs that are compared make their runs in turns, so that
/// both meet the same conditions of the machine; a script tells each when to go on. Prints "turn"
/// to `output` and waits for a line from the file descriptor `input`. Returns false if the input
/// has ended: there are no more turns. Input after the line is not read. Throws Error if an
/// InterruptGuard catches a signal.
bool take_turn(std::FILE* output, int input);

}  // namespace tessera
