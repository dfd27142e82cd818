#pragma once

#include <cstdint>

#include "base/file.h"

namespace tessera {

/// The sizes in bytes of this machine's data caches; 0 if the system does not say. All last-level
/// caches are taken to be as large as that of the first core.
struct CacheSizes {
  int64_t first_level = 0;   ///< of the first core
  int64_t second_level = 0;  ///< of the first core
  int64_t last_level = 0;    ///< the sum over the whole machine

  bool operator==(const CacheSizes&) const = default;
};

/// Reads the sizes from the system's folder of processors; tests pass another one.
CacheSizes cache_sizes(const fs::path& folder = "/sys/devices/system/cpu");

}  // namespace tessera
