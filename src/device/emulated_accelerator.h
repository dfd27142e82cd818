#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "device/emulation.h"

namespace tessera {

/// Opens an emulated device with warps of `lanes` threads (32 or 64). Its streams are threads of
/// this process. While none of them has work, a read or write of the device's memory by the host
/// ends in a segmentation fault, except in upload() and readback(). The device has `memory_bytes`
/// bytes of memory; 0 stands for as many as this process may use.
std::unique_ptr<Accelerator> open_emulated(int lanes = 32, const emulation::Options& options = {},
                                           int64_t memory_bytes = 0);

}  // namespace tessera
