#pragma once

#include "program/target.h"

namespace tessera {

/// Returns the target (the machine that a plan is made for) that describes this machine: its
/// processor with `threads` threads, and a device if one is named. The instructions are
/// host_instructions(), which ONEDNN_MAX_CPU_ISA may limit.
Target host_target(int threads, Kernels kernels = Kernels::fast, Device device = Device::cpu);

}  // namespace tessera
