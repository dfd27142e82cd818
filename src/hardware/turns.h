#pragma once

#include <cstdio>

namespace tessera {

/// Takes turns with another program: prints "turn" to `output` and waits for a line from the file
/// descriptor `input`. False when the input has ended: there are no more turns. What follows the
/// line stays in the input. Throws Error when a signal comes that an InterruptGuard caught.
bool take_turn(std::FILE* output, int input);

}  // namespace tessera
