#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/device_links.h"

namespace tessera {

/// Moves bytes between emulated devices: in its stream's turn, each calls a communicator of ranks
/// on the processor, which is for these calls alone. A call that fails ends the stream's work with
/// its error.
std::unique_ptr<DeviceLinks> emulated_links(Communicator group);

}  // namespace tessera
