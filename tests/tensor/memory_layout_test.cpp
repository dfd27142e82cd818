#include "tensor/memory_layout.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int64_t kUnit = MemoryLayout::kAlignment;

TEST(MemoryLayout, RoundsUpToWholeUnits) {
  EXPECT_EQ(MemoryLayout::rounded(0), kUnit);
  EXPECT_EQ(MemoryLayout::rounded(1), kUnit);
  EXPECT_EQ(MemoryLayout::rounded(kUnit), kUnit);
  EXPECT_EQ(MemoryLayout::rounded(kUnit + 1), 2 * kUnit);
}

TEST(MemoryLayout, ReusesTheSmallestHoleThatFits) {
  MemoryLayout layout;
  const int64_t large = layout.allocate(4 * kUnit);
  layout.allocate(kUnit);
  const int64_t small = layout.allocate(2 * kUnit);
  layout.allocate(kUnit);
  layout.release(large);
  layout.release(small);
  EXPECT_EQ(layout.allocate(2 * kUnit), small);
  EXPECT_EQ(layout.allocate(3 * kUnit), large);
  EXPECT_EQ(layout.allocate(kUnit), large + 3 * kUnit);
  EXPECT_EQ(layout.extent(), 8 * kUnit);
}

TEST(MemoryLayout, JoinsNeighboursInEveryOrderOfRelease) {
  const std::vector<std::vector<int>> orders{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
  for (const auto& order : orders) {
    MemoryLayout layout;
    std::vector<int64_t> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(layout.allocate(2 * kUnit));
    layout.allocate(kUnit);
    for (const int i : order) layout.release(blocks[static_cast<size_t>(i)]);
    EXPECT_EQ(layout.allocate(6 * kUnit), blocks[0]);
    EXPECT_EQ(layout.extent(), 7 * kUnit);
  }
}

TEST(MemoryLayout, GrowsFromAHoleAtTheEnd) {
  MemoryLayout layout;
  layout.allocate(kUnit);
  const int64_t last = layout.allocate(2 * kUnit);
  layout.release(last);
  EXPECT_EQ(layout.allocate(5 * kUnit), last);
  EXPECT_EQ(layout.extent(), 6 * kUnit);
}

TEST(MemoryLayout, AForgottenBlockChangesNothing) {
  const auto offsets = [](MemoryLayout layout) {
    const int64_t first = layout.allocate(2 * kUnit);
    const int64_t second = layout.allocate(kUnit);
    layout.release(first);
    // The room behind the last block is no hole, however small the rest of what was used once is.
    return std::vector<int64_t>{second, layout.allocate(kUnit), layout.allocate(3 * kUnit)};
  };
  for (int64_t used = 1; used < 8; ++used) {
    MemoryLayout layout;
    layout.release(layout.allocate(used * kUnit));
    EXPECT_EQ(offsets(layout), offsets({})) << used;
  }
}

TEST(MemoryLayout, CountsThePeakSinceItsReset) {
  MemoryLayout layout;
  const int64_t first = layout.allocate(3 * kUnit);
  const int64_t second = layout.allocate(kUnit);
  layout.release(first);
  EXPECT_EQ(layout.in_use(), kUnit);
  EXPECT_EQ(layout.peak_in_use(), 4 * kUnit);
  layout.reset_peak();
  EXPECT_EQ(layout.peak_in_use(), kUnit);
  layout.release(second);
  EXPECT_EQ(layout.peak_in_use(), kUnit);
  EXPECT_EQ(layout.in_use(), 0);
}

TEST(MemoryLayout, RefusesToReleaseWhatIsNotInUse) {
  MemoryLayout layout;
  const int64_t block = layout.allocate(kUnit);
  layout.release(block);
  EXPECT_THROW(layout.release(block), InternalError);
  EXPECT_THROW(layout.release(7), InternalError);
}

/// The blocks in use in a plain list: what MemoryLayout must agree with.
struct NaiveLayout {
  std::map<int64_t, int64_t> blocks;  // offset -> size
  int64_t peak = 0;
  int64_t extent = 0;

  int64_t in_use() const {
    int64_t sum = 0;
    for (const auto& [offset, size] : blocks) sum += size;
    return sum;
  }
  bool overlaps(int64_t offset, int64_t size) const {
    for (const auto& [other, other_size] : blocks) {
      if (offset < other + other_size && other < offset + size) return true;
    }
    return false;
  }
  /// The smallest gap before a block that `size` fits in; 0 when it fits in none.
  int64_t best_gap(int64_t size) const {
    int64_t best = 0;
    int64_t end = 0;
    const auto consider = [&](int64_t gap) {
      if (gap >= size && (best == 0 || gap < best)) best = gap;
    };
    for (const auto& [offset, block_size] : blocks) {
      consider(offset - end);
      end = offset + block_size;
    }
    return best;
  }
  /// The size of the gap that starts at `offset`.
  int64_t gap_at(int64_t offset) const {
    const auto next = blocks.upper_bound(offset);
    return next == blocks.end() ? 0 : next->first - offset;
  }
  /// The first address past the last block.
  int64_t end_of_blocks() const {
    return blocks.empty() ? 0 : blocks.rbegin()->first + blocks.rbegin()->second;
  }
};

RC_GTEST_PROP(MemoryLayout, AgreesWithANaiveModel, ()) {
  MemoryLayout layout;
  NaiveLayout naive;
  const int steps = *rc::gen::inRange(1, 120);
  for (int step = 0; step < steps; ++step) {
    if (!naive.blocks.empty() && *rc::gen::inRange(0, 5) < 2) {
      auto block = naive.blocks.begin();
      std::advance(block, *rc::gen::inRange<size_t>(0, naive.blocks.size()));
      layout.release(block->first);
      naive.blocks.erase(block);
    } else {
      const int64_t bytes = *rc::gen::inRange<int64_t>(0, 12 * kUnit);
      const int64_t size = MemoryLayout::rounded(bytes);
      const int64_t best = naive.best_gap(size);
      const int64_t expected_extent = layout.extent_after(bytes);
      const int64_t offset = layout.allocate(bytes);
      RC_ASSERT(layout.extent() == expected_extent);
      RC_ASSERT(offset % kUnit == 0);
      RC_ASSERT(!naive.overlaps(offset, size));
      if (best > 0) {
        RC_ASSERT(naive.gap_at(offset) == best);
      } else {
        RC_ASSERT(offset == naive.end_of_blocks());
        naive.extent = std::max(naive.extent, offset + size);
      }
      naive.blocks.emplace(offset, size);
      naive.peak = std::max(naive.peak, naive.in_use());
    }
    RC_ASSERT(layout.in_use() == naive.in_use());
    RC_ASSERT(layout.peak_in_use() == naive.peak);
    RC_ASSERT(layout.extent() == naive.extent);
  }
}

}  // namespace
}  // namespace tessera
