#pragma once

#include <cstdint>

namespace tessera {

/// Bytes of memory that the machine has.
int64_t physical_memory();

}  // namespace tessera
