#pragma once

#include <cstdint>

#include "base/file.h"

namespace tessera {

/// Bytes of the data caches of this machine; 0 where the system does not tell.
struct CacheSizes {
  int64_t first_level = 0;   ///< of the first core
  int64_t second_level = 0;  ///< of the first core
  int64_t last_level = 0;    ///< all of the machine together

  bool operator==(const CacheSizes&) const = default;
};

/// From the system's folder of processors.
CacheSizes cache_sizes(const fs::path& folder = "/sys/devices/system/cpu");

}  // namespace tessera
