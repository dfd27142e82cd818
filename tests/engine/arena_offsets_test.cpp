#include "engine/arena_offsets.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/placed_blocks.h"

namespace tessera {
namespace {

bool at_once(const MemoryBlock& a, const MemoryBlock& b) {
  for (const Interval& x : a.live) {
    for (const Interval& y : b.live) {
      if (x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

TEST(ArenaPlaces, BlocksThatAreNeverInUseAtOnceShareMemory) {
  std::vector<MemoryBlock> blocks{{.bytes = 128, .live = {{0, 2}}},
                                  {.bytes = 64, .live = {{1, 4}}},
                                  {.bytes = 128, .live = {{2, 5}}},
                                  {.bytes = 64, .live = {{4, 6}}}};
  EXPECT_EQ(assign_offsets(blocks), 192);
  EXPECT_EQ(blocks[0].offset, blocks[2].offset);
  EXPECT_EQ(blocks[1].offset, blocks[3].offset);
  EXPECT_EQ(live_bytes(blocks, 6), (std::vector<int64_t>{128, 192, 192, 192, 192, 64}));
}

TEST(ArenaPlaces, ABlockFitsIntoAHoleOfItsTimeOnly) {
  // In use at steps 0 and 2: another block may have the place in between, but not one that lasts.
  std::vector<MemoryBlock> blocks{{.bytes = 128, .live = {{0, 1}, {2, 3}}},
                                  {.bytes = 64, .live = {{1, 2}}},
                                  {.bytes = 64, .live = {{1, 3}}}};
  EXPECT_EQ(assign_offsets(blocks, 1024), 1024 + 192);
  EXPECT_EQ(blocks[0].offset, 1024);
  EXPECT_EQ(blocks[1].offset, 1024);
  EXPECT_EQ(blocks[2].offset, 1024 + 128);
}

constexpr int kSteps = 30;  // of the timeline of a property's blocks

std::vector<MemoryBlock> some_blocks() {
  std::vector<MemoryBlock> blocks(*rc::gen::inRange<size_t>(0, 40));
  for (MemoryBlock& block : blocks) {
    // Some blocks are so large that the search goes on after its first order.
    block.bytes = *rc::gen::element<int64_t>(64, 64 << 10) * *rc::gen::inRange<int64_t>(0, 20);
    int step = *rc::gen::inRange(0, kSteps / 2);
    const int count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count && step < kSteps; ++i) {
      const int end = std::min(step + *rc::gen::inRange(1, 8), kSteps);
      block.live.push_back({step, end});
      step = end + *rc::gen::inRange(1, 5);
    }
  }
  return blocks;
}

RC_GTEST_PROP(ArenaPlaces, NoTwoBlocksMeet, ()) {
  std::vector<MemoryBlock> blocks = some_blocks();
  const int64_t base = 64 * *rc::gen::inRange<int64_t>(0, 4);
  const int64_t end = assign_offsets(blocks, base);
  int64_t highest = base;
  for (size_t i = 0; i < blocks.size(); ++i) {
    RC_ASSERT(blocks[i].offset >= base);
    highest = std::max(highest, blocks[i].offset + blocks[i].bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool apart = blocks[i].offset + blocks[i].bytes <= blocks[j].offset ||
                         blocks[j].offset + blocks[j].bytes <= blocks[i].offset;
      RC_ASSERT(apart || !at_once(blocks[i], blocks[j]));
    }
  }
  RC_ASSERT(end == highest);
  for (const int64_t bytes : live_bytes(blocks, kSteps)) RC_ASSERT(base + bytes <= end);
}

/// The lowest offset by a look at every block.
int64_t plain_lowest_fit(const MemoryBlock& block, std::span<const MemoryBlock> placed,
                         int64_t base) {
  const auto meets_none = [&](int64_t offset) {
    return std::ranges::none_of(placed, [&](const MemoryBlock& other) {
      return offset < other.offset + other.bytes && other.offset < offset + block.bytes &&
             at_once(block, other);
    });
  };
  std::vector<int64_t> candidates{base};
  for (const MemoryBlock& other : placed) candidates.push_back(other.offset + other.bytes);
  std::ranges::sort(candidates);
  return *std::ranges::find_if(candidates, meets_none);
}

RC_GTEST_PROP(PlacedBlocks, TheLowestFreeOffsetIsFound, ()) {
  std::vector<MemoryBlock> blocks = some_blocks();
  const int64_t base = 64 * *rc::gen::inRange<int64_t>(0, 4);
  PlacedBlocks placed(kSteps);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t offset = placed.lowest_fit(blocks[i], base);
      RC_ASSERT(offset == plain_lowest_fit(blocks[i], {blocks.data(), i}, base));
      blocks[i].offset = offset;
      placed.add(blocks[i], offset);
    }
    placed.clear();
    std::ranges::reverse(blocks);
  }
}

}  // namespace
}  // namespace tessera
