#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "device/emulation.h"

namespace tessera {

/// Opens an emulated device with warps of `lanes` threads. Its streams are threads of this process.
/// Its memory cannot be read or written while none of its streams has work: the host that tries
/// gets a segmentation fault. It has `memory_bytes` bytes of memory, or as much as this process may
/// use if that is 0.
std::unique_ptr<Accelerator> open_emulated(int lanes = 32, const emulation::Options& options = {},
                                           int64_t memory_bytes = 0);

}  // namespace tessera
