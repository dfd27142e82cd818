#pragma once

#include <cstdint>

#include "device/stream.h"

namespace tessera {

// Puts narrow_in_place() and widen_in_place() for memory of a device into its stream.
template <typename Vendor>
void narrow_device(void* memory, int64_t elements, Stream& stream);
template <typename Vendor>
void widen_device(void* memory, int64_t elements, Stream& stream);

}  // namespace tessera
