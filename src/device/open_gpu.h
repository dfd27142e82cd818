#pragma once

#include <memory>

#include "device/accelerator.h"

namespace tessera {

/// Opens one of NVIDIA's GPUs that this process may use (CUDA_VISIBLE_DEVICES). A rank gets the GPU
/// with the rank's number on its machine, or the only GPU if a launcher shows each rank a GPU of
/// its own. Throws Error if the driver is missing or too old, if the GPU has a compute capability
/// below 8.0, and if there are fewer GPUs than ranks. Exists only in builds with TESSERA_CUDA.
std::unique_ptr<Accelerator> open_cuda(const LocalRank& rank);

/// Opens one of AMD's GPUs (HIP_VISIBLE_DEVICES) in the same way. Throws Error if this build has no
/// kernels for it. Exists in builds with TESSERA_HIP only.
std::unique_ptr<Accelerator> open_hip(const LocalRank& rank);

}  // namespace tessera
