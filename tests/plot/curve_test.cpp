#include "plot/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

std::vector<Point> random_curve() {
  const auto heights = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-1000, 1000));
  std::vector<Point> curve;
  double x = 0;
  for (const int height : heights) {
    x += *rc::gen::inRange(0, 20) / 10.0;
    curve.push_back({x, static_cast<double>(height)});
  }
  return curve;
}

RC_GTEST_PROP(Thinned, EachColumnKeepsItsEndsAndItsSpikes, ()) {
  const auto curve = random_curve();
  const double column = *rc::gen::element(1.0, 8.0);
  const auto kept = thinned(curve, column);
  // What is kept is of the curve, in its order.
  auto place = curve.begin();
  for (const Point& point : kept) {
    place = std::find(place, curve.end(), point);
    RC_ASSERT(place != curve.end());
    ++place;
  }
  const double columns = curve.empty() ? 0 : std::floor(curve.back().x / column) + 1;
  RC_ASSERT(static_cast<double>(kept.size()) <= 4 * columns);
  for (double i = 0; i < columns; ++i) {
    const auto within = [&](const std::vector<Point>& points) {
      std::vector<Point> result;
      for (const Point& point : points) {
        if (std::floor(point.x / column) == i) result.push_back(point);
      }
      return result;
    };
    const auto all = within(curve), seen = within(kept);
    RC_ASSERT(all.empty() == seen.empty());
    if (all.empty()) continue;
    RC_ASSERT(all.front() == seen.front() && all.back() == seen.back());
    const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
    RC_ASSERT(std::min_element(all.begin(), all.end(), lower)->y ==
              std::min_element(seen.begin(), seen.end(), lower)->y);
    RC_ASSERT(std::max_element(all.begin(), all.end(), lower)->y ==
              std::max_element(seen.begin(), seen.end(), lower)->y);
  }
}

TEST(Pieces, AreBetweenGaps) {
  const std::vector<Point> curve{{0, kGap}, {1, 1}, {2, 2}, {3, kGap}, {4, kGap}, {5, 5}};
  const auto found = pieces(curve);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].data(), &curve[1]);
  EXPECT_EQ(found[0].size(), 2U);
  EXPECT_EQ(found[1].data(), &curve[5]);
  EXPECT_EQ(found[1].size(), 1U);
  EXPECT_TRUE(pieces({}).empty());
}

RC_GTEST_PROP(Smoothed, IsTheMeanOfAWindowThatShrinksAtTheEnds, ()) {
  const auto curve = random_curve();
  const int64_t reach = *rc::gen::inRange(0, 6);
  const auto smooth = smoothed(curve, 2 * reach + 1);
  RC_ASSERT(smooth.size() == curve.size());
  const auto count = static_cast<int64_t>(curve.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i < reach ? 0 : i - reach;
    const int64_t last = std::min(i < reach ? 2 * i : i + reach, count - 1);
    double sum = 0;
    for (int64_t k = first; k <= last; ++k) sum += curve[static_cast<size_t>(k)].y;
    const double mean = sum / static_cast<double>(last - first + 1);
    RC_ASSERT(std::abs(smooth[static_cast<size_t>(i)].y - mean) < 1e-9);
    RC_ASSERT(smooth[static_cast<size_t>(i)].x == curve[static_cast<size_t>(i)].x);
  }
}

TEST(Smoothed, ASteepBeginningStaysAndAnEndDoesNotHookAfterTheLastValues) {
  std::vector<Point> curve;
  for (int i = 0; i < 20; ++i) curve.push_back({2.0 * i, 100 - 3.0 * i});
  for (int i = 20; i < 40; ++i) curve.push_back({2.0 * i, 40});
  const std::vector<Point> flat = smoothed(curve, 11);
  for (size_t i = 0; i < 15; ++i) EXPECT_NEAR(flat[i].y, curve[i].y, 1e-9);
  EXPECT_EQ(flat.back().y, 40);
  curve.back().y = 46;
  EXPECT_NEAR(smoothed(curve, 11).back().y, 41, 1e-9);
}

TEST(Smoothed, DoesNotGoAcrossGapsNorBeyondTheValues) {
  const std::vector<Point> curve{{0, 10}, {1, 10}, {2, kGap}, {3, 0}, {4, 0}, {5, 1}, {6, 9}};
  const auto smooth = smoothed(curve, 5);
  EXPECT_EQ(smooth[0].y, 10);
  EXPECT_EQ(smooth[1].y, 10);
  EXPECT_TRUE(std::isnan(smooth[2].y));
  EXPECT_EQ(smooth[3].y, 0);
  EXPECT_NEAR(smooth[6].y, 10.0 / 3, 1e-12);
}

}  // namespace
}  // namespace tessera
