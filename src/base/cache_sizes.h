#pragma once

#include <cstdint>

#include "base/file.h"

namespace tessera {

/// The sizes in bytes of this machine's data caches; 0 if the system does not say. It is assumed
/// that all last-level caches are as large as the first core's.
struct CacheSizes {
  int64_t first_level = 0;   ///< of the first core
  int64_t second_level = 0;  ///< of the first core
  int64_t last_level = 0;    ///< the sum over the whole machine

  bool operator==(const CacheSizes&) const = default;
};

/// Reads the sizes from the system's folder of processors; tests pass another folder.
CacheSizes cache_sizes(const fs::path& folder = "/sys/devices/system/cpu");

}  // namespace tessera
