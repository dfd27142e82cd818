#pragma once

#include "program/operation.h"

namespace tessera {

/// Enqueues a run of an operation on the stream of the emulated device, with the processor's
/// kernels. It serves attention and grouped products, which vendor libraries compute on all other
/// devices; it throws InternalError there. The operation must outlive the run.
void run_by_processor(const Operation& operation, const Execution& execution);

}  // namespace tessera
