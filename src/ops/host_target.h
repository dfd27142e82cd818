#pragma once

#include "program/target.h"

namespace tessera {

/// Returns the processor that this process runs on as a target with `threads` threads, and a device
/// beside it, if one is named. The instructions are those that oneDNN uses here, which
/// ONEDNN_MAX_CPU_ISA may limit.
Target host_target(int threads, Kernels kernels = Kernels::fast, Device device = Device::cpu);

}  // namespace tessera
