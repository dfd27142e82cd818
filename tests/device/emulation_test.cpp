#include "device/emulation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/bugs.h"
#include "device/emulated_accelerator.h"
#include "device/vendor.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr emulation::Order kOrders[] = {emulation::Order::forward, emulation::Order::backward,
                                        emulation::Order::shuffled};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

/// What the kernel of bugs.cu leaves in its 512 elements for x = 0, 1, ..., n - 1.
std::vector<float> run_bug(Bug bug, int lanes, emulation::Order order, int n = 256) {
  const auto accelerator = open_emulated(lanes, {.order = order, .seed = 3});
  const auto stream = accelerator->make_stream();
  std::vector<float> x(static_cast<size_t>(n)), out(512);
  std::iota(x.begin(), x.end(), 0.0f);
  const auto device_x = accelerator->allocate(n * int64_t{sizeof(float)});
  const auto device_out = accelerator->allocate(512 * sizeof(float));
  accelerator->upload(std::as_bytes(std::span(x)), device_x->address());
  const auto sum = [&](auto vendor) {
    sum_with_bug<decltype(vendor)>(bug, static_cast<float*>(device_x->address()), n,
                                   static_cast<float*>(device_out->address()), *stream);
  };
  lanes == 64 ? sum(Emulated<64>{}) : sum(Emulated<32>{});
  stream->synchronize();
  accelerator->readback(device_out->address(), std::as_writable_bytes(std::span(out)));
  return out;
}

bool depends_on_the_order(Bug bug, int lanes) {
  const std::vector<float> first = run_bug(bug, lanes, kOrders[0]);
  return std::ranges::any_of(kOrders,
                             [&](auto order) { return run_bug(bug, lanes, order) != first; });
}

class EmulationOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Lanes, EmulationOf, ::testing::Values(32, 64));

TEST_P(EmulationOf, ARightKernelIsRightInEveryOrder) {
  for (const auto order : kOrders) {
    EXPECT_EQ(run_bug(Bug::none, GetParam(), order), std::vector<float>(512, 255 * 128.0f));
  }
}

TEST_P(EmulationOf, AMissingBarrierShows) {
  if (kThreadSanitizer) {
    EXPECT_DEATH(run_bug(Bug::missing_barrier, GetParam(), kOrders[0]), "data race");
  } else {
    EXPECT_TRUE(depends_on_the_order(Bug::missing_barrier, GetParam()));
  }
}

TEST_P(EmulationOf, OnePlaceThatAllThreadsWriteShows) {
  if (kThreadSanitizer) {
    EXPECT_DEATH(run_bug(Bug::one_element_for_all, GetParam(), kOrders[0]), "data race");
  } else {
    EXPECT_TRUE(depends_on_the_order(Bug::one_element_for_all, GetParam()));
  }
}

TEST_P(EmulationOf, ABarrierThatSomeDoNotReachIsAnErrorWithTheirNumbers) {
  if (kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer ends the program before that";
  const int lanes = GetParam();
  const std::string error = error_of([&] { run_bug(Bug::barrier_in_a_branch, lanes, kOrders[0]); });
  EXPECT_THAT(error, AllOf(HasSubstr("block (0, 0)"), HasSubstr(std::to_string(lanes) + " threads"),
                           HasSubstr(std::to_string(256 - lanes) + " have returned")));
}

TEST_P(EmulationOf, AShuffleWithoutAllLanesIsAnErrorWithTheirNumber) {
  const std::string missing = std::to_string(GetParam() - 1) + " for their warp";
  EXPECT_THAT(error_of([&] { run_bug(Bug::missing_lane, GetParam(), kOrders[0]); }),
              HasSubstr(missing));
}

TEST_P(EmulationOf, AReadPastTheEndIsSeenByTheAddressSanitizer) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs the address sanitizer";
  EXPECT_DEATH(run_bug(Bug::read_past_the_end, GetParam(), kOrders[0], 100), "bugs.cu");
}

TEST(Emulator, RefusesBlocksThatAreNotWholeWarps) {
  emulation::Emulator emulator;
  std::atomic<int> runs = 0;
  const auto count = [&] { ++runs; };
  EXPECT_THROW(emulator.run({.blocks = 1, .threads = 33}, 32, count), InternalError);
  EXPECT_THROW(emulator.run({.blocks = 1, .threads = 2048}, 32, count), InternalError);
  EXPECT_THROW(emulator.run({.blocks = 1, .threads = 0}, 32, count), InternalError);
  emulator.run({.blocks = 3, .threads = 64}, 64, count);
  EXPECT_EQ(runs, 192);
}

TEST(Emulator, GoesOnAfterAKernelThatThrewOrWasStuck) {
  emulation::Emulator emulator;
  const Grid grid{.blocks = 1, .threads = 64};
  EXPECT_THROW(emulator.run(grid, 32, [] { throw Error("out of a kernel"); }), Error);
  EXPECT_THROW(emulator.run(grid, 32,
                            [] {
                              if (emulation::thread_index().x < 40) emulation::wait_for_block();
                            }),
               Error);
  std::vector<int> seen(64, 0);
  emulator.run(grid, 32, [&] {
    emulation::wait_for_block();
    ++seen[emulation::thread_index().x];
  });
  EXPECT_EQ(seen, std::vector<int>(64, 1));
}

TEST(Emulator, ThreadsHaveTheirPlacesInBothDims) {
  emulation::Emulator emulator;
  std::vector<int> seen(2 * 3 * 16 * 4, 0);
  emulator.run({.blocks = 2, .threads = 16, .blocks_y = 3, .threads_y = 4}, 32, [&] {
    const auto block = emulation::block_index(), thread = emulation::thread_index();
    ++seen[((block.y * 2 + block.x) * 4 + thread.y) * 16 + thread.x];
    EXPECT_EQ(emulation::grid_size().y, 3U);
    EXPECT_EQ(emulation::block_size().y, 4U);
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(Emulator, WarpsExchangeValuesAndVote) {
  for (const int lanes : {32, 64}) {
    for (const auto order : kOrders) {
      emulation::Emulator emulator({.order = order, .seed = 9});
      emulator.run({.blocks = 2, .threads = 128}, lanes, [&] {
        const auto thread = static_cast<int>(emulation::thread_index().x);
        const int lane = thread % lanes;
        EXPECT_EQ(emulation::lane(), lane);
        for (int round = 0; round < 3; ++round) {
          const auto mine = static_cast<uint64_t>(100 * round + thread);
          EXPECT_EQ(emulation::exchange(mine, lane ^ 5), mine - lane + (lane ^ 5));
        }
        uint64_t odd = 0;
        for (int other = 1; other < lanes; other += 2) odd |= uint64_t{1} << other;
        EXPECT_EQ(emulation::ballot(lane % 2 == 1), odd);
      });
    }
  }
}

TEST(Emulator, DynamicSharedMemoryIsTheBlocksAndBeginsUndefined) {
  emulation::Emulator emulator;
  emulator.run({.blocks = 3, .threads = 32, .shared_bytes = 128}, 32, [&] {
    auto* const shared = static_cast<float*>(emulation::dynamic_shared());
    const auto thread = emulation::thread_index().x;
    EXPECT_TRUE(std::isnan(shared[thread]));
    shared[thread] = static_cast<float>(thread);
    emulation::wait_for_block();
    EXPECT_EQ(shared[31 - thread], static_cast<float>(31 - thread));
  });
}

}  // namespace
}  // namespace tessera
