#pragma once

#include <memory>

#include "device/accelerator.h"

namespace tessera {

/// Opens one of NVIDIA's GPUs that this process may use (CUDA_VISIBLE_DEVICES): of several ranks of
/// a machine each has the one of its place, or the only one, if a launcher shows each its own.
/// Throws Error if there is no driver, none that is new enough, no GPU of compute capability 8.0 or
/// newer, or fewer than ranks. Exists in builds with TESSERA_CUDA only.
std::unique_ptr<Accelerator> open_cuda(const DevicePlace& place);

/// The same of AMD's GPUs (HIP_VISIBLE_DEVICES), for which this build has kernels. Exists in builds
/// with TESSERA_HIP only.
std::unique_ptr<Accelerator> open_hip(const DevicePlace& place);

}  // namespace tessera
