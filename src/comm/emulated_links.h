#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"

namespace tessera {

/// Returns links that move bytes between emulated devices. The memory of such a device is memory of
/// the processor. So when a stream comes to the work of a call, it makes the same call by `group`,
/// a communicator on the processor (which takes sums in the order of the ranks). Nothing else calls
/// `group`: the streams of all ranks must make its calls in the same order. If the call fails, the
/// stream's work ends with the error.
std::unique_ptr<DeviceLinks> emulated_links(Communicator group);

/// Returns what moves posted messages between emulated devices. The memory of such a device is
/// memory of the processor. So when a stream comes to a post or a wait, it makes the same call by
/// `group`, a communicator on the processor that nothing else calls. A post does not block, so no
/// streams are needed beside those of the calls: these must be one stream, or ordered by events.
/// If a call fails, the stream's work ends with the error.
std::unique_ptr<DevicePosts> emulated_posts(Communicator group);

}  // namespace tessera
