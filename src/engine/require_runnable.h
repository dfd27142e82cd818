#pragma once

#include <span>

#include "program/program.h"

namespace tessera {

/// Opens what the programs' operations need on the runtime's accelerator: libraries and their
/// plans. Throws Error, as the first run would, if something is missing: a library, kernels in this
/// build, or a device that has such kernels. Does nothing on the processor.
void require_runnable(std::span<const Program* const> programs, Runtime& runtime);

}  // namespace tessera
