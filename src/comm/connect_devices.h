#pragma once

#include <chrono>
#include <functional>
#include <span>

#include "comm/communicator.h"
#include "device/accelerator.h"

namespace tessera {

/// Lets a group's calls take operands in the memory of the ranks' devices, and calls
/// require_right_sums(). All ranks of the group call it, each with a device of the same kind.
/// `make_group` makes one more communicator of the same ranks, on the processor: emulated devices
/// move their data by it. Throws Error if the devices cannot reach each other, or if the library
/// that moves data between them is missing or too old. Device work that takes longer than the
/// timeout counts as stuck.
void connect_devices(Communicator& group, const std::function<Communicator()>& make_group,
                     Accelerator& accelerator, std::chrono::milliseconds timeout);

/// Lets ranks of a group post messages between their devices, to and from the positions `peers`
/// (Communicator::post_send()). All ranks of the group call it, after connect_devices(). Two ranks
/// that post messages to each other name each other. The other arguments are as above.
void connect_posts(Communicator& group, std::span<const int> peers,
                   const std::function<Communicator()>& make_group, Accelerator& accelerator,
                   std::chrono::milliseconds timeout);

/// Throws Error if ranks cannot be joined on devices of this kind at all: their library is missing
/// or too old, or this version does not call it. It is cheap, and is called before a run begins,
/// when no thread of a rank runs yet: it may set an environment variable (require_nccl()).
void require_device_links(Device device);

/// Sums known numbers over the devices by all-reduces that take all paths of DeviceTransport. If a
/// sum is wrong on any rank, all ranks throw Error that names the first such rank and the sum.
void require_right_sums(Communicator& group, Accelerator& accelerator);

}  // namespace tessera
