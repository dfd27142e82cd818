#pragma once

#include <memory>

#include "device/accelerator.h"

namespace tessera {

/// Opens NVIDIA's first GPU that this process may use (CUDA_VISIBLE_DEVICES). Throws Error if there
/// is no driver, none that is new enough, or no GPU of compute capability 8.0 or newer. Exists in
/// builds with TESSERA_CUDA only.
std::unique_ptr<Accelerator> open_cuda();

/// Opens AMD's first GPU that this process may use (HIP_VISIBLE_DEVICES). Throws Error if there is
/// none that this build has kernels for. Exists in builds with TESSERA_HIP only.
std::unique_ptr<Accelerator> open_hip();

}  // namespace tessera
