#pragma once

#include <cstdio>

namespace tessera {

/// Waits for this program's turn. Two programs that are compared make their runs in turns, so that
/// both meet the same conditions of the machine. A script tells each program when to go on. Prints
/// "turn" to `output` and waits for a line from the file descriptor `input`. Returns false, for no
/// more turns, if the input has ended or cannot be read. Input after the line is not read. Throws
/// Error if an InterruptGuard catches a signal.
bool take_turn(std::FILE* output, int input);

}  // namespace tessera
