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

/// Memory that is in use at some times. Two blocks may share bytes where they never are at once.
struct MemoryBlock {
  int64_t bytes = 0;           ///< a multiple of the alignment
  std::vector<Interval> live;  ///< ascending, not touching one another
  int64_t offset = -1;         ///< where place_blocks() puts it
};

/// Gives every block a place from `base` on: the largest first, each at the lowest offset at which
/// nothing lies that is in use with it. Deterministic. Returns the end of the highest block.
int64_t place_blocks(std::span<MemoryBlock> blocks, int64_t base = 0);

/// By step of a timeline of `steps`: the bytes in use.
std::vector<int64_t> live_bytes(std::span<const MemoryBlock> blocks, int steps);

}  // namespace tessera
