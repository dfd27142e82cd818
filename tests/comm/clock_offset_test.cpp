#include "comm/clock_offset.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "base/monotonic.h"
#include "comm/in_process/run_mesh.h"

namespace tessera {
namespace {

/// Measures the offsets of ranks whose clocks are behind the first one's by these seconds.
template <size_t ranks>
std::array<ClockOffset, ranks> measured(const std::array<double, ranks>& behind) {
  std::array<ClockOffset, ranks> offsets;
  World world(ranks, std::chrono::seconds(20));
  run_mesh(world, Mesh({.data = {ranks}}), [&](RankGroups& groups) {
    const auto rank = static_cast<size_t>(groups.rank());
    const RankControl control(groups);
    offsets[rank] =
        measure_clock_offset(control, [own = behind[rank]] { return monotonic_seconds() - own; });
  });
  return offsets;
}

TEST(ClockOffset, IsWithinItsUncertainty) {
  const std::array<double, 4> behind{0, 12.5, -3000, 1e5};
  const std::array<ClockOffset, 4> offsets = measured(behind);
  for (size_t rank = 1; rank < 4; ++rank) {
    // The clocks themselves are rounded to some nanoseconds.
    constexpr double kRounding = 1e-8;
    EXPECT_GT(offsets[rank].uncertainty, 0);
    EXPECT_LE(std::abs(offsets[rank].seconds - behind[rank]),
              offsets[rank].uncertainty + kRounding);
    // The moment is by the rank's own clock.
    EXPECT_NEAR(offsets[rank].at + behind[rank], offsets[0].at, 20);
  }
}

TEST(ClockOffset, IsZeroForRanksThatShareTheFirstOnesClock) {
  for (const ClockOffset& offset : measured(std::array<double, 4>{})) {
    EXPECT_EQ(offset.seconds, 0);
    EXPECT_EQ(offset.uncertainty, 0);
  }
  const ClockOffset alone = measure_clock_offset({}, [] { return 7.0; });
  EXPECT_EQ(alone.at, 7);
  EXPECT_EQ(alone.seconds, 0);
}

TEST(ClockOffset, IsOneForRanksThatShareAClock) {
  const std::array<ClockOffset, 5> offsets = measured(std::array<double, 5>{0, 800, 800, 0, -9});
  EXPECT_EQ(offsets[1].seconds, offsets[2].seconds);
  EXPECT_EQ(offsets[1].uncertainty, offsets[2].uncertainty);
  EXPECT_EQ(offsets[3].seconds, 0);
  EXPECT_NE(offsets[4].seconds, offsets[1].seconds);
}

}  // namespace
}  // namespace tessera
