#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Steps [begin, end) of a timeline.
struct Interval {
  int begin = 0;
  int end = 0;
};

/// Memory that is in use at some times. Two blocks may share bytes if they are never in use at
/// once.
struct MemoryBlock {
  int64_t bytes = 0;           ///< a multiple of the alignment
  std::vector<Interval> live;  ///< ascending, not touching one another
  int64_t offset = -1;         ///< where place_blocks() puts it
};

/// Gives every block an offset from `base` on, at which it overlaps no block that is in use at the
/// same time. Returns the end of the highest block. To place blocks without holes is NP-hard. This
/// takes each block at the lowest offset that is free, in several orders, and keeps the best.
/// Deterministic.
int64_t place_blocks(std::span<MemoryBlock> blocks, int64_t base = 0);

/// The bytes in use at each step of a timeline of `steps` steps.
std::vector<int64_t> live_bytes(std::span<const MemoryBlock> blocks, int steps);

}  // namespace tessera
