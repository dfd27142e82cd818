#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"

namespace tessera {

/// Returns links that move bytes between emulated devices, whose memory is the processor's. When a
/// stream comes to a call, it makes the call by `group`: a communicator on the processor that is
/// for these calls alone. A call that fails ends the stream's work with its error.
std::unique_ptr<DeviceLinks> emulated_links(Communicator group);

}  // namespace tessera
