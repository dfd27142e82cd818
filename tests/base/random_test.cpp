#include "base/random.h"

#include <array>
#include <cmath>
#include <vector>

#include <Random123/philox.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TEST(Philox, GivesThePublishedNumbers) {
  // The known answers of Random123 (Salmon et al., 2011) for philox4x32-10.
  using Philox = r123::Philox4x32;
  const auto zeros = Philox()(Philox::ctr_type{{0, 0, 0, 0}}, Philox::key_type{{0, 0}});
  EXPECT_EQ(zeros, (Philox::ctr_type{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

TEST(CounterRandom, IsAFunctionOfKeyAndIndex) {
  const CounterRandom random(3, "layers.0.q");
  const uint64_t later = random.bits(1000);
  EXPECT_EQ(CounterRandom(3, "layers.0.q").bits(1000), later);
  EXPECT_NE(CounterRandom(4, "layers.0.q").bits(1000), later);
  EXPECT_NE(CounterRandom(3, "layers.0.k").bits(1000), later);
  EXPECT_NE(random.bits(1001), later);
  EXPECT_NE(random.bits(1000 + (uint64_t{1} << 32)), later);
}

TEST(CounterRandom, UniformFillsTheUnitIntervalEvenly) {
  const CounterRandom random(1, "uniform");
  constexpr int kCount = 200'000;
  std::array<int, 20> cells{};
  for (int i = 0; i < kCount; ++i) {
    const double value = random.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++cells[static_cast<size_t>(value * 20)];
  }
  // Chi-squared with 19 degrees of freedom exceeds 43.8 once in a thousand samples.
  double chi_squared = 0;
  for (const int cell : cells) chi_squared += std::pow(cell - kCount / 20.0, 2) / (kCount / 20.0);
  EXPECT_LT(chi_squared, 43.8);
}

TEST(CounterRandom, NormalHasTheMomentsOfTheStandardNormal) {
  const CounterRandom random(1, "normal");
  constexpr int kCount = 200'000;
  std::array<double, 5> moments{};
  int within_one = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.normal(static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(value));
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(value, power) / kCount;
    within_one += std::abs(value) < 1 ? 1 : 0;
  }
  // Four standard errors each: sqrt(variance of the power / count).
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(moments[1], 0, 4 * 1.0 / root);
  EXPECT_NEAR(moments[2], 1, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moments[3], 0, 4 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moments[4], 3, 4 * std::sqrt(96.0) / root);
  EXPECT_NEAR(static_cast<double>(within_one) / kCount, 0.6827, 4 * 0.47 / root);
}

RC_GTEST_PROP(Permutation, ReachesEveryIndexOnce, ()) {
  const auto size = *rc::gen::inRange<uint64_t>(1, 3000);
  const Permutation permutation(size, *rc::gen::arbitrary<uint64_t>());
  std::vector<bool> reached(size);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t image = permutation(i);
    RC_ASSERT(image < size);
    RC_ASSERT(!reached[image]);
    reached[image] = true;
  }
}

TEST(Permutation, IsNeitherTheIdentityNorTheSameForEverySeed) {
  const Permutation first(1000, 1);
  const Permutation second(1000, 2);
  int fixed = 0;
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    fixed += first(i) == i ? 1 : 0;
    equal += first(i) == second(i) ? 1 : 0;
  }
  EXPECT_LT(fixed, 10);
  EXPECT_LT(equal, 10);
}

TEST(Permutation, CoversLargeRangesAndRefusesOthers) {
  const uint64_t size = (uint64_t{1} << 40) + 7;
  const Permutation permutation(size, 5);
  EXPECT_LT(permutation(size - 1), size);
  EXPECT_THROW(permutation(size), InternalError);
}

}  // namespace
}  // namespace tessera
