#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"

namespace tessera {

/// Returns links that move bytes between emulated devices. When its stream comes to a call, each
/// device calls `group`, a communicator of ranks on the processor that is for these calls alone. A
/// call that fails ends the stream's work with its error.
std::unique_ptr<DeviceLinks> emulated_links(Communicator group);

}  // namespace tessera
