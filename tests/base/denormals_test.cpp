#include "base/denormals.h"

#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.h"

namespace tessera {
namespace {

/// The smallest normal number halved, at run time.
bool keeps_denormals() {
  volatile float number = std::numeric_limits<float>::min();
  number = number * 0.5F;
  return number > 0;
}

TEST(Denormals, AreZeroInTheThreadAndInThoseThatItStarts) {
  bool kept_before = false;
  bool kept = true;
  bool kept_in_child = true;
  std::vector<char> kept_in_team(2, 1);
  std::thread([&] {
    kept_before = keeps_denormals();
    flush_denormals();
    kept = keeps_denormals();
    std::thread([&] { kept_in_child = keeps_denormals(); }).join();
    parallel_ranges(2, 2, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        kept_in_team[static_cast<size_t>(i)] = keeps_denormals() ? 1 : 0;
      }
    });
  }).join();
  EXPECT_TRUE(kept_before);
  EXPECT_FALSE(kept);
  EXPECT_FALSE(kept_in_child);
  EXPECT_EQ(kept_in_team, std::vector<char>({0, 0}));
  EXPECT_TRUE(keeps_denormals());  // other threads go on as they were
}

}  // namespace
}  // namespace tessera
