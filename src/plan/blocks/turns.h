#pragma once

#include <cstdio>

namespace tessera {

/// Takes turns with another program: prints "turn" to `output` and waits for a line from the file
/// descriptor `input`. Returns false if the input has ended, which means that there are no more
/// turns. What follows the line stays in the input. Throws Error if an InterruptGuard catches a
/// signal.
bool take_turn(std::FILE* output, int input);

}  // namespace tessera
