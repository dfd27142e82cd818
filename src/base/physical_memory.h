#pragma once

#include <cstdint>

namespace tessera {

/// The bytes of memory that the machine has.
int64_t physical_memory();

}  // namespace tessera
