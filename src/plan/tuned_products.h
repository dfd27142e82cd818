#pragma once

#include "config/run_config.h"
#include "program/runtime.h"

namespace tessera {

/// Lets the runtime's products use the algorithms of the table that run.tuned_products names, if it
/// names one (see ops/gemm/device_gemm.h). Call it before the first product. Throws Error if the
/// table cannot be read, or is for another version of the library, another device, or a device that
/// has no algorithms to choose from.
void use_tuned_products(const RunConfig& config, Runtime& runtime);

}  // namespace tessera
