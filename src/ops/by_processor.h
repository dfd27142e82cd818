#pragma once

#include "program/operation.h"

namespace tessera {

/// Puts a run of an operation into the stream of the emulated device, by the processor's kernels.
/// For attention and grouped products, which are the vendors' libraries on other devices: these
/// throw InternalError. The operation must outlive the run.
void run_by_processor(const Operation& operation, const Execution& execution);

}  // namespace tessera
