#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/device_links.h"
#include "device/accelerator.h"

namespace tessera {

/// Returns links that move bytes between NVIDIA's GPUs by NCCL. All ranks of the group call it. The
/// first rank broadcasts the address at which NCCL joins them. Throws Error on all ranks if a rank
/// has no NCCL, one that is too old, or another version than the first rank, or if a rank does not
/// come in time. The links refer to the group. Exists in builds with TESSERA_CUDA only.
///
/// If work does not end within the timeout, or NCCL reports that it failed, it is aborted. The
/// host's wait for the work then throws Error.
std::unique_ptr<DeviceLinks> nccl_links(Communicator& group, Accelerator& accelerator,
                                        std::chrono::milliseconds timeout);

/// Returns what moves posted messages between NVIDIA's GPUs by NCCL, to and from the positions
/// `peers`. All ranks of the group call it, and a rank is a peer of its peers. Each direction
/// between two ranks has a communicator of NCCL and a stream of its own, so a message waits only
/// for earlier ones of its direction. Refers to the group. Errors are those of nccl_links(). Exists
/// in builds with TESSERA_CUDA only.
std::unique_ptr<DevicePosts> nccl_posts(Communicator& group, std::span<const int> peers,
                                        Accelerator& accelerator,
                                        std::chrono::milliseconds timeout);

/// Throws Error if NCCL is missing or too old. Sets an environment variable for NCCL, so it is
/// called before links are made, while no other thread runs. Exists only with TESSERA_CUDA.
void require_nccl();

}  // namespace tessera
