#pragma once

#include <cstdint>

namespace tessera {

/// The memory in which a process keeps what others sent until it is summed or put in its place, and
/// once more for what it sends, a group. Larger operands go through it in rounds. It is about what
/// a processor's cache holds, from where sums are taken.
inline constexpr int64_t kStagingBytes = int64_t{2} << 20;

}  // namespace tessera
