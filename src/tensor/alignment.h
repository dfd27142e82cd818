#pragma once

#include <algorithm>
#include <cstdint>

#include "base/round_up.h"

namespace tessera {

/// What every block of memory begins at: a cache line.
inline constexpr int64_t kAlignment = 64;

/// What the system maps at once where it is asked to.
inline constexpr int64_t kHugePage = int64_t{1} << 21;

/// Bytes that a block of `bytes` takes: rounded up to the alignment, at least one unit.
constexpr int64_t aligned_bytes(int64_t bytes) {
  return std::max(round_up(bytes, kAlignment), kAlignment);
}

}  // namespace tessera
