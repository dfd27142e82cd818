#pragma once

#include "program/operation.h"

namespace tessera {

/// Enqueues a run of an operation on the stream of the emulated device, with the processor's
/// kernels. It serves operations that GPUs leave to vendor libraries: attention and grouped
/// products. Throws InternalError on any other device. The operation must outlive the run.
void run_by_processor(const Operation& operation, const Execution& execution);

}  // namespace tessera
