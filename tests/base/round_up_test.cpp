#include "base/round_up.h"

#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RoundUp, GivesTheNextMultipleOrTheNumberItself) {
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(1, 8), 8);
  EXPECT_EQ(round_up(8, 8), 8);
  EXPECT_EQ(round_up(9, 8), 16);
}

TEST(RoundUp, AnAddressMovesToTheNextMultipleByLessThanOne) {
  constexpr int64_t kUnit = 256;
  std::vector<std::byte> memory(2 * kUnit);
  for (int64_t i = 0; i < kUnit; ++i) {
    std::byte* const address = memory.data() + i;
    std::byte* const aligned = align_up(address, kUnit);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % kUnit, 0U);
    EXPECT_GE(aligned, address);
    EXPECT_LT(aligned, address + kUnit);
  }
}

}  // namespace
}  // namespace tessera
