// Finds offsets for blocks of memory. OffsetSearch puts one block after the other at its lowest
// free offset. It begins with three orders: by bytes, by bytes times steps in use, and by steps in
// use, the largest first. After each order it moves the block that ended highest to the front and
// tries again. It stops within 0.1 % of a lower bound, the most bytes in use at once, or within 2 %
// if that is no more than 64 KiB, or after a number of tries.

#include "engine/arena_offsets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/placed_blocks.h"

namespace tessera {
namespace {

using Order = std::vector<size_t>;

/// Returns the number of steps of the timeline of all blocks.
int steps_of(std::span<const MemoryBlock> blocks) {
  int steps = 0;
  for (const MemoryBlock& block : blocks) steps = std::max(steps, block.live.back().end);
  return steps;
}

/// The offsets that blocks get in some order, and the end of the highest block.
struct ArenaOffsets {
  std::vector<int64_t> offsets;
  int64_t end = 0;
};

int64_t steps_in_use(const MemoryBlock& block) {
  int64_t steps = 0;
  for (const Interval& interval : block.live) steps += interval.end - interval.begin;
  return steps;
}

/// Returns the indices of the blocks, sorted by a key, the largest first. Blocks with equal keys
/// are sorted by the step at which they are first in use.
template <typename Key>
Order ordered_by(std::span<const MemoryBlock> blocks, const Key& key) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto key_a = key(blocks[a]), key_b = key(blocks[b]);
    if (key_a != key_b) return key_a > key_b;
    return blocks[a].live.front().begin < blocks[b].live.front().begin;
  });
  return order;
}

/// Returns the most bytes in use at once. No offsets take less.
int64_t peak_live_bytes(std::span<const MemoryBlock> blocks) {
  const std::vector<int64_t> live = live_bytes(blocks, steps_of(blocks));
  return live.empty() ? 0 : *std::ranges::max_element(live);
}

/// Searches for offsets that take little more than the most bytes in use at once.
class OffsetSearch {
 public:
  OffsetSearch(std::span<const MemoryBlock> blocks, int64_t base)
      : blocks_(blocks),
        base_(base),
        least_end_(base + peak_live_bytes(blocks)),
        placed_(steps_of(blocks)) {}

  ArenaOffsets run() {
    search(ordered_by(blocks_, [](const MemoryBlock& block) { return block.bytes; }));
    search(ordered_by(blocks_, [](const MemoryBlock& block) {
      return static_cast<double>(block.bytes) * static_cast<double>(steps_in_use(block));
    }));
    search(ordered_by(blocks_, steps_in_use));
    return std::move(best_);
  }

 private:
  static constexpr int64_t kMaxTries = 100;        // of one order
  static constexpr int64_t kMaxPlaced = 100'000;   // blocks, in all tries of an order
  static constexpr int64_t kWasteDivisor = 1'000;  // 1 / 1000 more than the least bytes is enough
  static constexpr int64_t kSmallWasteDivisor = 50, kMostSmallWaste = 64 << 10;  // or 1 / 50

  bool good_enough() const {
    const int64_t least = least_end_ - base_;
    const int64_t enough =
        std::max(least / kWasteDivisor, std::min(least / kSmallWasteDivisor, kMostSmallWaste));
    return !best_.offsets.empty() && best_.end - least_end_ <= enough;
  }

  /// Tries an order, and then orders in which the block that ended highest in the latest one comes
  /// first, so that it gets a low offset.
  void search(Order order) {
    if (good_enough()) return;
    attempt(std::move(order));
    const auto tries = std::min(kMaxTries, kMaxPlaced / std::ssize(blocks_));
    for (int64_t i = 0; i < tries && !good_enough(); ++i) move_highest_first();
  }

  void attempt(Order order) {
    latest_ = assign_in_order(order);
    if (best_.offsets.empty() || latest_.end < best_.end) best_ = latest_;
    latest_order_ = std::move(order);
  }

  ArenaOffsets assign_in_order(const Order& order) {
    ArenaOffsets result{.offsets = std::vector<int64_t>(blocks_.size()), .end = base_};
    placed_.clear();
    for (const size_t index : order) {
      const MemoryBlock& block = blocks_[index];
      const int64_t offset = placed_.lowest_fit(block, base_);
      result.offsets[index] = offset;
      result.end = std::max(result.end, offset + block.bytes);
      placed_.add(block, offset);
    }
    return result;
  }

  void move_highest_first() {
    Order order = latest_order_;
    const auto is_highest = [&](size_t index) {
      return latest_.offsets[index] + blocks_[index].bytes == latest_.end;
    };
    const auto highest = std::ranges::find_if(order, is_highest);
    std::rotate(order.begin(), highest, highest + 1);
    attempt(std::move(order));
  }

  std::span<const MemoryBlock> blocks_;
  int64_t base_;
  int64_t least_end_;  // a lower bound of the end of the highest block
  PlacedBlocks placed_;
  ArenaOffsets best_, latest_;
  Order latest_order_;
};

}  // namespace

std::vector<Interval> united(std::span<const Interval> a, std::span<const Interval> b) {
  std::vector<Interval> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all, {}, &Interval::begin);
  std::vector<Interval> result;
  for (const Interval& interval : all) {
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

bool overlap(std::span<const Interval> a, std::span<const Interval> b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].begin < b[j].end && b[j].begin < a[i].end) return true;
    a[i].end <= b[j].end ? ++i : ++j;
  }
  return false;
}

int64_t assign_offsets(std::span<MemoryBlock> blocks, int64_t base) {
  if (blocks.empty()) return base;
  const ArenaOffsets best = OffsetSearch(blocks, base).run();
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = best.offsets[i];
  return best.end;
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
