#include "plot/ticks.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

/// A number between 1 and 10 with a power of ten; sometimes negative.
double random_number(bool positive) {
  const double mantissa = 1 + *rc::gen::inRange(0, 9000) / 1000.0;
  const double size = mantissa * std::pow(10.0, *rc::gen::inRange(-12, 20));
  return positive || *rc::gen::arbitrary<bool>() ? size : -size;
}

/// A range that is not too narrow for ticks.
Range random_range(bool positive) {
  const double a = random_number(positive), b = random_number(positive);
  RC_PRE(std::abs(a - b) > 1e-6 * std::max(std::abs(a), std::abs(b)));
  return {std::min(a, b), std::max(a, b)};
}

/// The number that a label says.
double read_label(const std::string& label) {
  size_t used = 0;
  const double number = std::stod(label, &used);
  if (used == label.size()) return number;
  const size_t thousands = std::string(" kMGTPE").find(label[used]);
  RC_ASSERT(thousands != std::string::npos && used + 1 == label.size());
  return number * std::pow(1000.0, static_cast<double>(thousands));
}

void check_ticks(const Ticks& ticks, const Range& range) {
  RC_ASSERT(ticks.values.size() == ticks.labels.size());
  std::set<std::string> labels(ticks.labels.begin(), ticks.labels.end());
  RC_ASSERT(labels.size() == ticks.labels.size());
  for (size_t i = 0; i < ticks.values.size(); ++i) {
    const double value = ticks.values[i];
    const double margin = 2e-6 * (range.high - range.low);
    RC_ASSERT(value >= range.low - margin && value <= range.high + margin);
    if (i > 0) RC_ASSERT(value > ticks.values[i - 1]);
    const double tolerance = 1e-9 * std::max(std::abs(range.low), std::abs(range.high));
    RC_ASSERT(std::abs(read_label(ticks.labels[i]) - value) <= tolerance);
  }
}

RC_GTEST_PROP(Ticks, LinearOnesCoverTheRangeInRoundSteps, ()) {
  const Range range = random_range(false);
  const int count = *rc::gen::inRange(3, 12);
  const Ticks ticks = linear_ticks(range, count, false);
  check_ticks(ticks, range);
  RC_ASSERT(ticks.values.size() <= static_cast<size_t>(count) + 1);
  RC_ASSERT(ticks.values.size() + 1 >= static_cast<size_t>(count / 2.5));
  RC_PRE(ticks.values.size() >= 2);
  const double step =
      (ticks.values.back() - ticks.values.front()) / static_cast<double>(ticks.values.size() - 1);
  const double lead = step / std::pow(10.0, std::floor(std::log10(step) + 1e-6));
  RC_ASSERT(std::abs(lead - 1) < 1e-5 || std::abs(lead - 2) < 1e-5 || std::abs(lead - 5) < 1e-5);
  // No part at either end could hold another.
  RC_ASSERT(ticks.values.front() - range.low < step * 1.000001);
  RC_ASSERT(range.high - ticks.values.back() < step * 1.000001);
}

RC_GTEST_PROP(Ticks, WholeOnesAreWhole, ()) {
  const Range range{static_cast<double>(*rc::gen::inRange(0, 50)),
                    static_cast<double>(*rc::gen::inRange(51, 100000))};
  const Ticks ticks = linear_ticks(range, 10, true);
  check_ticks(ticks, range);
  RC_ASSERT(!ticks.values.empty());
  for (const double value : ticks.values) RC_ASSERT(value == std::round(value));
}

RC_GTEST_PROP(Ticks, LogarithmicOnesAreFewAndNotTooFew, ()) {
  const Range range = random_range(true);
  const int count = *rc::gen::inRange(4, 12);
  const Ticks ticks = log_ticks(range, count);
  check_ticks(ticks, range);
  RC_ASSERT(ticks.values.size() <= static_cast<size_t>(std::max(count + 1, 18)));
  RC_ASSERT(!ticks.values.empty());
}

TEST(Ticks, LabelsAreThoseOfAPaper) {
  EXPECT_THAT(linear_ticks({0, 600}, 8, true).labels,
              ElementsAre("0", "100", "200", "300", "400", "500", "600"));
  EXPECT_THAT(linear_ticks({0, 2500}, 5, true).labels,
              ElementsAre("0", "0.5k", "1.0k", "1.5k", "2.0k", "2.5k"));
  EXPECT_THAT(linear_ticks({0, 3e-4}, 3, false).labels, ElementsAre("0", "1e-4", "2e-4", "3e-4"));
  EXPECT_THAT(linear_ticks({2.95, 3.3}, 4, false).labels, ElementsAre("3.0", "3.1", "3.2", "3.3"));
  EXPECT_THAT(linear_ticks({-1, 1}, 4, false).labels,
              ElementsAre("-1.0", "-0.5", "0", "0.5", "1.0"));
  EXPECT_THAT(linear_ticks({0, 2}, 8, true).labels, ElementsAre("0", "1", "2"));
  EXPECT_THAT(linear_ticks({100000, 100004}, 4, false).labels,
              ElementsAre("100000", "100001", "100002", "100003", "100004"));
  EXPECT_THAT(linear_ticks({0, 4e22}, 4, false).labels,
              ElementsAre("0", "1e22", "2e22", "3e22", "4e22"));
  EXPECT_THAT(log_ticks({1, 100000}, 8).labels, ElementsAre("1", "10", "100", "1k", "10k", "100k"));
  EXPECT_THAT(log_ticks({0.004, 0.3}, 8).labels,
              ElementsAre("5e-3", "0.01", "0.02", "0.05", "0.1", "0.2"));
  EXPECT_THAT(log_ticks({3, 6.5}, 8).labels, ElementsAre("3", "4", "5", "6"));
  EXPECT_THAT(log_ticks({3.1, 3.3}, 4).labels, ElementsAre("3.10", "3.15", "3.20", "3.25", "3.30"));
}

}  // namespace
}  // namespace tessera
