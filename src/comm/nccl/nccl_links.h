#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"
#include "device/accelerator.h"

namespace tessera {

/// Moves bytes between NVIDIA's GPUs by NCCL. All ranks of the group call it. They learn NCCL's
/// address from the group's first rank, by the group's own calls. Throws Error on all ranks if one
/// has no NCCL, an old one or another version than the first, or if they do not come together in
/// time. Later work that does not end within the timeout, or that NCCL reports a failure of, is
/// aborted, and ends what waits for it by an error. Refers to the group. Exists
/// in builds with TESSERA_CUDA only.
std::unique_ptr<DeviceLinks> nccl_links(Communicator& group, Accelerator& accelerator,
                                        std::chrono::milliseconds timeout);

/// Throws Error if NCCL is missing here or too old. Tells it how this program uses it, so it comes
/// before all links, while no other thread runs. Exists in builds with TESSERA_CUDA only.
void require_nccl();

}  // namespace tessera
