#pragma once

#include <span>

#include "program/program.h"

namespace tessera {

/// Opens what the programs' operations need of the runtime's accelerator: libraries, and plans of
/// theirs. Throws Error, as the first run would, if something is missing: a library, kernels in
/// this build, or a device that has such kernels. Does nothing where the processor computes.
void require_runnable(std::span<const Program* const> programs, Runtime& runtime);

}  // namespace tessera
