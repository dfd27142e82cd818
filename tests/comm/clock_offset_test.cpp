#include "comm/clock_offset.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "base/monotonic.h"
#include "comm/in_process/run_mesh.h"

namespace tessera {
namespace {

/// A clock that is so many seconds behind the monotonic one.
struct ClockBehind {
  double seconds = 0;
  uint64_t id = 0;
};

/// Measures the offsets of ranks that read these clocks. The first one is not behind.
template <size_t ranks>
std::array<ClockOffset, ranks> measured(const std::array<ClockBehind, ranks>& clocks) {
  std::array<ClockOffset, ranks> offsets;
  World world(ranks, std::chrono::seconds(20));
  run_mesh(world, Mesh({.data = {ranks}}), [&](RankGroups& groups) {
    const auto rank = static_cast<size_t>(groups.rank());
    const auto [behind, id] = clocks[rank];
    const auto seconds = [behind] { return monotonic_seconds() - behind; };
    offsets[rank] = measure_clock_offset(RankControl(groups), {.seconds = seconds, .id = id});
  });
  return offsets;
}

void expect_measured(const ClockOffset& offset, double behind) {
  constexpr double kRounding = 1e-8;  // the clocks themselves are rounded to some nanoseconds
  EXPECT_GT(offset.uncertainty, 0);
  EXPECT_LE(std::abs(offset.seconds - behind), offset.uncertainty + kRounding);
}

TEST(ClockOffset, IsWithinItsUncertainty) {
  const std::array<ClockBehind, 4> clocks{{{0, 1}, {12.5, 2}, {-3000, 3}, {1e5, 4}}};
  const std::array<ClockOffset, 4> offsets = measured(clocks);
  for (size_t rank = 1; rank < 4; ++rank) {
    expect_measured(offsets[rank], clocks[rank].seconds);
    // The moment is by the rank's own clock.
    EXPECT_NEAR(offsets[rank].at + clocks[rank].seconds, offsets[0].at, 20);
  }
}

TEST(ClockOffset, IsZeroForRanksThatShareTheFirstOnesClock) {
  for (const ClockOffset& offset : measured(std::array<ClockBehind, 4>{})) {
    EXPECT_EQ(offset.seconds, 0);
    EXPECT_EQ(offset.uncertainty, 0);
  }
  const ClockOffset alone = measure_clock_offset({}, {.seconds = [] { return 7.0; }});
  EXPECT_EQ(alone.at, 7);
  EXPECT_EQ(alone.seconds, 0);
}

TEST(ClockOffset, IsOneForRanksThatShareAClock) {
  const std::array<ClockOffset, 5> offsets =
      measured(std::array<ClockBehind, 5>{{{0, 1}, {800, 2}, {800, 2}, {0, 1}, {-9, 3}}});
  EXPECT_EQ(offsets[1].seconds, offsets[2].seconds);
  EXPECT_EQ(offsets[1].uncertainty, offsets[2].uncertainty);
  EXPECT_EQ(offsets[3].seconds, 0);
  EXPECT_NE(offsets[4].seconds, offsets[1].seconds);
}

TEST(ClockOffset, OfClocksThatAgreeByChanceIsMeasured) {
  const std::array<ClockOffset, 3> offsets =
      measured(std::array<ClockBehind, 3>{{{0, 1}, {0, 2}, {0, 3}}});
  EXPECT_EQ(offsets[0].uncertainty, 0);
  expect_measured(offsets[1], 0);
  expect_measured(offsets[2], 0);
}

/// As those of copies of a virtual machine.
TEST(ClockOffset, OfDifferentClocksWithOneIdIsMeasured) {
  const std::array<ClockOffset, 4> offsets =
      measured(std::array<ClockBehind, 4>{{{0, 1}, {5, 1}, {70, 2}, {-70, 2}}});
  EXPECT_EQ(offsets[0].seconds, 0);
  EXPECT_EQ(offsets[0].uncertainty, 0);
  expect_measured(offsets[1], 5);
  expect_measured(offsets[2], 70);
  expect_measured(offsets[3], -70);
}

TEST(ClockOffset, MonotonicClockIsOneForAllThreads) {
  const RankClock clock = monotonic_clock();
  uint64_t id_of_thread = 0;
  std::thread([&] { id_of_thread = monotonic_clock().id; }).join();
  EXPECT_EQ(clock.id, id_of_thread);
  const double before = monotonic_seconds();
  const double now = clock.seconds();
  EXPECT_LE(before, now);
  EXPECT_LE(now, monotonic_seconds());
}

}  // namespace
}  // namespace tessera
