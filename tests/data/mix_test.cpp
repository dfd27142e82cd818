#include "data/mix.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/support.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<size_t> draws(Mix& mix, int count) {
  std::vector<size_t> result;
  for (int i = 0; i < count; ++i) result.push_back(mix.next());
  return result;
}

std::vector<size_t> draws(std::vector<double> weights, int count) {
  Mix mix(weights, std::vector<int64_t>(weights.size()));
  return draws(mix, count);
}

TEST(Mix, EqualAndSimpleWeightsTakeTurns) {
  EXPECT_THAT(draws({5}, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(draws({1, 1}, 6), ElementsAre(0, 1, 0, 1, 0, 1));
  const std::vector<size_t> three_to_one = draws({3, 1}, 8);
  EXPECT_EQ(std::count(three_to_one.begin(), three_to_one.begin() + 4, 1), 1);
  EXPECT_EQ(std::count(three_to_one.begin() + 4, three_to_one.end(), 1), 1);
}

RC_GTEST_PROP(Mix, EachSourceHasItsShareToWithinLessThanOneDraw, ()) {
  const auto exponents = *rc::gen::nonEmpty<std::vector<int>>(
      rc::gen::container<std::vector<int>>(rc::gen::inRange(-8, 8)));
  std::vector<double> weights;
  for (const int exponent : exponents) {
    weights.push_back(std::exp2(exponent) * *rc::gen::inRange(1, 100));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts(weights.size());
  Mix mix(weights, counts);
  for (int n = 1; n <= 400; ++n) {
    ++counts[mix.next()];
    for (size_t i = 0; i < weights.size(); ++i) {
      RC_ASSERT(std::abs(static_cast<double>(counts[i]) - n * weights[i] / sum) < 1);
    }
  }
}

RC_GTEST_PROP(Mix, GoesOnFromItsCounts, ()) {
  const auto whole = *rc::gen::nonEmpty<std::vector<int>>(
      rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 1000)));
  const std::vector<double> weights(whole.begin(), whole.end());
  std::vector<int64_t> counts(weights.size());
  Mix undisturbed(weights, counts);
  const int before = *rc::gen::inRange(0, 300);
  for (int i = 0; i < before; ++i) ++counts[undisturbed.next()];
  Mix resumed(weights, counts);
  RC_ASSERT(draws(resumed, 100) == draws(undisturbed, 100));
}

TEST(Mix, ATrillionDrawsLaterSharesAreStillExact) {
  const std::vector<double> weights{0.7, 0.2, 0.1};
  const int64_t trillion = 1'000'000'000'000;
  std::vector<int64_t> counts{trillion / 10 * 7, trillion / 5, trillion / 10};
  Mix mix(weights, counts);
  std::vector<int64_t> more(3);
  for (int i = 0; i < 1000; ++i) ++more[mix.next()];
  EXPECT_NEAR(static_cast<double>(more[0]), 700, 3);
  EXPECT_NEAR(static_cast<double>(more[2]), 100, 3);
}

TEST(Mix, WhatCannotBeMixedIsRefused) {
  const auto message = [](std::vector<double> weights, std::vector<int64_t> counts) {
    return error_of([&] { Mix(weights, counts); });
  };
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e-10}) {
    EXPECT_THAT(message({1, wrong}, {0, 0}), HasSubstr("cannot be mixed")) << wrong;
  }
  EXPECT_THAT(message({1, 1}, {10, 3}), HasSubstr("not its share"));
  EXPECT_THAT(message({1, 1}, {-1, 0}), HasSubstr("not its share"));
}

}  // namespace
}  // namespace tessera
