#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/blocks/layer_blocks.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> loads_of(const std::vector<int32_t>& choices, int64_t experts) {
  std::vector<int64_t> loads(static_cast<size_t>(experts));
  for (const int32_t expert : choices) ++loads[static_cast<size_t>(expert)];
  return loads;
}

RC_GTEST_PROP(SkewedChoices, GiveTheFullestExpertItsLoadAndNoTokenAnExpertTwice, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 200);
  const auto experts = *rc::gen::inRange<int64_t>(1, 40);
  const auto k = *rc::gen::inRange<int64_t>(1, experts + 1);
  const double most = static_cast<double>(experts) / static_cast<double>(k);
  const double skew = 1 + (most - 1) * *rc::gen::inRange(0, 101) / 100.0;
  const std::vector<int32_t> choices = skewed_choices(tokens, experts, k, skew);
  RC_ASSERT(std::ssize(choices) == tokens * k);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::set<int32_t> of_token(choices.begin() + t * k, choices.begin() + (t + 1) * k);
    RC_ASSERT(std::ssize(of_token) == k);
    RC_ASSERT(*of_token.begin() >= 0 && *of_token.rbegin() < experts);
  }
  const std::vector<int64_t> loads = loads_of(choices, experts);
  const double balanced = static_cast<double>(tokens * k) / static_cast<double>(experts);
  // Loads are whole numbers, which are rounded along their sum.
  RC_ASSERT(std::abs(static_cast<double>(loads[0]) - skew * balanced) <= 1);
  for (size_t e = 1; e < loads.size(); ++e) RC_ASSERT(loads[e] <= loads[e - 1] + 1);
}

TEST(SkewedChoices, OfOneAreBalanced) {
  EXPECT_EQ(loads_of(skewed_choices(64, 8, 2, 1), 8), std::vector<int64_t>(8, 16));
}

TEST(SkewedChoices, RefuseWhatNoTokensCanChoose) {
  for (const double skew : {0.5, 4.5, -1.0}) {
    EXPECT_THAT(error_of([&] { skewed_choices(64, 8, 2, skew); }),
                AllOf(HasSubstr("2 of 8 experts"), HasSubstr("1 to 4 times")));
  }
}

}  // namespace
}  // namespace tessera
