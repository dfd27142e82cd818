#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/device_posts.h"
#include "device/accelerator.h"

namespace tessera {

/// Returns what moves posted messages between NVIDIA's GPUs by NCCL, to and from the positions
/// `peers`. All ranks of the group call it, and a rank is a peer of its peers. Each direction
/// between two ranks has a communicator of NCCL and a stream of its own, so a message waits only
/// for earlier ones of its direction. Refers to the group. Errors are those of nccl_links(). Exists
/// in builds with TESSERA_CUDA only.
std::unique_ptr<DevicePosts> nccl_posts(Communicator& group, std::span<const int> peers,
                                        Accelerator& accelerator,
                                        std::chrono::milliseconds timeout);

}  // namespace tessera
