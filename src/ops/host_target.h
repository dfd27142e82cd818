#pragma once

#include "program/target.h"

namespace tessera {

/// The processor that this process runs on, used by so many threads. Its products are those that
/// oneDNN takes here, which ONEDNN_MAX_CPU_ISA may limit.
Target host_target(int threads, Kernels kernels = Kernels::fast);

}  // namespace tessera
