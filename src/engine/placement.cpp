#include "engine/placement.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

/// What the search for a place reads of a block that has one: many of them, so it is little.
struct Placed {
  int64_t offset;
  int64_t end;
  int first;  // of the block's time, from its first interval's begin
  int last;   // to its last one's end
  const MemoryBlock* block;
};

bool overlap(const MemoryBlock& a, const MemoryBlock& b) {
  size_t i = 0, j = 0;
  while (i < a.live.size() && j < b.live.size()) {
    if (a.live[i].end <= b.live[j].begin) {
      ++i;
    } else if (b.live[j].end <= a.live[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

/// The lowest offset at which the block meets nothing; `placed` is ordered by offset.
int64_t lowest_fit(const MemoryBlock& block, const std::vector<Placed>& placed, int64_t base) {
  int64_t offset = base;
  const int first = block.live.front().begin;
  const int last = block.live.back().end;
  const bool single = block.live.size() == 1;
  for (const Placed& other : placed) {
    if (other.offset >= offset + block.bytes) break;
    if (other.end <= offset || other.first >= last || first >= other.last) continue;
    if ((!single || other.block->live.size() > 1) && !overlap(block, *other.block)) continue;
    offset = other.end;
  }
  return offset;
}

}  // namespace

int64_t place_blocks(std::span<MemoryBlock> blocks, int64_t base) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (blocks[a].bytes != blocks[b].bytes) return blocks[a].bytes > blocks[b].bytes;
    return blocks[a].live.front().begin < blocks[b].live.front().begin;
  });
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  int64_t extent = base;
  for (const size_t index : order) {
    MemoryBlock& block = blocks[index];
    block.offset = lowest_fit(block, placed, base);
    extent = std::max(extent, block.offset + block.bytes);
    const Placed entry{block.offset, block.offset + block.bytes, block.live.front().begin,
                       block.live.back().end, &block};
    placed.insert(std::ranges::upper_bound(placed, entry.offset, {}, &Placed::offset), entry);
  }
  return extent;
}

std::vector<int64_t> live_bytes(std::span<const MemoryBlock> blocks, int steps) {
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1, 0);
  for (const MemoryBlock& block : blocks) {
    for (const Interval& interval : block.live) {
      change[static_cast<size_t>(interval.begin)] += block.bytes;
      change[static_cast<size_t>(interval.end)] -= block.bytes;
    }
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

}  // namespace tessera
