#include "inference/sampling.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TEST(Sampling, FollowsItsOptions) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  const auto counts = [&](const SamplingOptions& options) {
    std::vector<int> result(4);
    for (uint64_t i = 0; i < 4000; ++i) ++result[static_cast<size_t>(sample(logits, options, i))];
    return result;
  };
  EXPECT_EQ(counts({.temperature = 0}), (std::vector<int>{4000, 0, 0, 0}));
  const auto plain = counts({.temperature = 1});
  // Within five standard deviations of a binomial.
  EXPECT_NEAR(plain[0], 2000, 160);
  EXPECT_NEAR(plain[3], 200, 70);
  const auto two = counts({.temperature = 1, .top_k = 2});
  EXPECT_EQ(two[2] + two[3], 0);
  EXPECT_NEAR(two[0], 2500, 155);
  const auto nucleus = counts({.temperature = 1, .top_p = 0.9});
  EXPECT_EQ(nucleus[3], 0);
  EXPECT_GT(nucleus[2], 0);
  const std::vector<float> broken{0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(sample(broken, {}, 0), Error);
  EXPECT_THROW(sample(logits, {.temperature = -1}, 0), Error);
  EXPECT_THROW(sample(logits, {.top_k = -1}, 0), Error);
  EXPECT_THROW(sample(logits, {.top_p = 0}, 0), Error);
}

}  // namespace
}  // namespace tessera
