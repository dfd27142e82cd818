#include "base/usable_memory.h"

#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(PeakResidentBytes, GrowsWithWhatIsTouchedAndStays) {
  constexpr int64_t kBytes = 64 << 20;
  constexpr int64_t kSlack = 2 << 20;  // the system counts pages in batches
  const int64_t before = peak_resident_bytes();
  EXPECT_GT(before, 1 << 20);
  int64_t with = 0;
  {
    const std::vector<char> touched(static_cast<size_t>(before + kBytes), 1);
    with = peak_resident_bytes();
    EXPECT_EQ(touched.back(), 1);
  }
  EXPECT_GE(with, before + kBytes - kSlack);
  EXPECT_GE(peak_resident_bytes(), with - kSlack);
}

}  // namespace
}  // namespace tessera
