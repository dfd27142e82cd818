#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"
#include "device/accelerator.h"

namespace tessera {

/// Returns links that move bytes between NVIDIA's GPUs by NCCL. All ranks of the group call it.
/// They get NCCL's address from the group's first rank, by a broadcast of the group. Throws Error
/// on all ranks if one has no NCCL, one that is too old or another version than the first rank, or
/// if they do not come together in time. The links refer to the group.
///
/// Later work is aborted if it does not end within the timeout, or if NCCL reports that it failed.
/// The host's wait for that work then throws Error. Exists in builds with TESSERA_CUDA only.
std::unique_ptr<DeviceLinks> nccl_links(Communicator& group, Accelerator& accelerator,
                                        std::chrono::milliseconds timeout);

/// Throws Error if NCCL is missing here or too old. Configures NCCL by an environment variable, so
/// it is called before any links are made, while no other thread runs. Exists in builds with
/// TESSERA_CUDA only.
void require_nccl();

}  // namespace tessera
