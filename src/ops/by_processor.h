#pragma once

#include "program/operation.h"

namespace tessera {

/// Enqueues a run of an operation on the stream of the emulated device, with the processor's
/// kernels. Serves attention and grouped products, which vendor libraries run on other devices:
/// throws InternalError on those. The operation must outlive the run.
void run_by_processor(const Operation& operation, const Execution& execution);

}  // namespace tessera
