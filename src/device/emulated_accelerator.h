#pragma once

#include <memory>

#include "device/accelerator.h"
#include "device/emulation.h"

namespace tessera {

/// Opens an emulated device with warps of `lanes` threads. Its streams are threads of this process.
/// Its memory cannot be read or written while none of its streams has work: the host that tries
/// gets a segmentation fault.
std::unique_ptr<Accelerator> open_emulated(int lanes = 32, const emulation::Options& options = {});

}  // namespace tessera
