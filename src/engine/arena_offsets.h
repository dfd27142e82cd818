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

/// Returns the steps that are in one of two lists or in both, as ascending intervals that do not
/// touch. So are those of each list.
std::vector<Interval> united(std::span<const Interval> a, std::span<const Interval> b);
/// Returns whether a step is in both.
bool overlap(std::span<const Interval> a, std::span<const Interval> b);

/// A block of memory that is in use during some steps. Two blocks may share bytes if they are never
/// in use at the same time.
struct MemoryBlock {
  int64_t bytes = 0;           ///< a multiple of the alignment
  std::vector<Interval> live;  ///< the steps: ascending intervals that do not touch; at least one
  int64_t offset = -1;         ///< set by assign_offsets()
};

/// Gives every block an offset, `base` or more, at which it overlaps no block that is in use at the
/// same time. Returns the end of the highest block. The result is deterministic but not always the
/// lowest possible end, which is NP-hard to find: the best of several orders is taken.
int64_t assign_offsets(std::span<MemoryBlock> blocks, int64_t base = 0);

/// Returns the bytes in use at each step of a timeline of `steps` steps.
std::vector<int64_t> live_bytes(std::span<const MemoryBlock> blocks, int steps);

}  // namespace tessera
