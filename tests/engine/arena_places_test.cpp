#include "engine/arena_places.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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
  EXPECT_EQ(place_blocks(blocks), 192);
  EXPECT_EQ(blocks[0].offset, blocks[2].offset);
  EXPECT_EQ(blocks[1].offset, blocks[3].offset);
  EXPECT_EQ(live_bytes(blocks, 6), (std::vector<int64_t>{128, 192, 192, 192, 192, 64}));
}

TEST(ArenaPlaces, ABlockFitsIntoAHoleOfItsTimeOnly) {
  // In use at steps 0 and 2: another block may have the place in between, but not one that lasts.
  std::vector<MemoryBlock> blocks{{.bytes = 128, .live = {{0, 1}, {2, 3}}},
                                  {.bytes = 64, .live = {{1, 2}}},
                                  {.bytes = 64, .live = {{1, 3}}}};
  EXPECT_EQ(place_blocks(blocks, 1024), 1024 + 192);
  EXPECT_EQ(blocks[0].offset, 1024);
  EXPECT_EQ(blocks[1].offset, 1024);
  EXPECT_EQ(blocks[2].offset, 1024 + 128);
}

RC_GTEST_PROP(ArenaPlaces, NoTwoBlocksMeet, ()) {
  constexpr int kSteps = 30;
  std::vector<MemoryBlock> blocks(*rc::gen::inRange<size_t>(0, 40));
  for (MemoryBlock& block : blocks) {
    block.bytes = 64 * *rc::gen::inRange<int64_t>(1, 20);
    int step = *rc::gen::inRange(0, kSteps / 2);
    const int count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count && step < kSteps; ++i) {
      const int end = std::min(step + *rc::gen::inRange(1, 8), kSteps);
      block.live.push_back({step, end});
      step = end + *rc::gen::inRange(1, 5);
    }
  }
  const int64_t base = 64 * *rc::gen::inRange<int64_t>(0, 4);
  const int64_t end = place_blocks(blocks, base);
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

}  // namespace
}  // namespace tessera
