#pragma once

#include <algorithm>
#include <cstdint>

#include "base/round_up.h"

namespace tessera {

/// The alignment in bytes of every block of memory: a cache line.
inline constexpr int64_t kAlignment = 64;

/// The bytes of a huge page. The system maps memory in pages of this size if madvise() asks for it.
inline constexpr int64_t kHugePage = int64_t{1} << 21;

/// Returns the bytes that a block of `bytes` takes: rounded up to kAlignment, and at least
/// kAlignment.
constexpr int64_t aligned_bytes(int64_t bytes) {
  return std::max(round_up(bytes, kAlignment), kAlignment);
}

}  // namespace tessera
