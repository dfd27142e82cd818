#include "ops/math/vector_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/larger.h"

namespace tessera {
namespace {

/// The largest distance from the reference in units of its last place, over floats of either sign
/// up to `largest` in magnitude, taken `stride` representations apart. Blocks of floats go through
/// loops that vectorise.
template <typename Function, typename Reference>
double largest_error(float largest, uint32_t stride, Function function, Reference reference) {
  double worst = 0;
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> points;
    for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(largest); bits += stride) {
      points.push_back(sign * std::bit_cast<float>(bits));
    }
    std::vector<float> results(points.size());
    for (size_t i = 0; i < points.size(); ++i) results[i] = function(points[i]);
    for (size_t i = 0; i < points.size(); ++i) {
      const double expected = reference(static_cast<double>(points[i]));
      const int exponent = expected == 0 ? -126 : std::max(std::ilogb(expected), -126);
      const double unit = std::ldexp(1.0, exponent - 23);
      worst = testing::larger(worst, std::abs(results[i] - expected) / unit);
    }
  }
  return worst;
}

TEST(VectorMath, ExpIsAccurateOverItsWholeRange) {
  const auto fast = [](float x) { return exp_fast(x); };
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(largest_error(88.72f, 1009, fast, exact), 1.5);
}

TEST(VectorMath, ExpAtItsEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_fast(0.0f), 1.0f);
  EXPECT_EQ(exp_fast(-kInfinity), 0.0f);
  EXPECT_EQ(exp_fast(-1e30f), 0.0f);
  EXPECT_EQ(exp_fast(-104.0f), 0.0f);
  EXPECT_EQ(exp_fast(kInfinity), kInfinity);
  EXPECT_EQ(exp_fast(1e30f), kInfinity);
  EXPECT_EQ(exp_fast(88.73f), kInfinity);
  EXPECT_LT(exp_fast(88.72f), kInfinity);
  EXPECT_LE(exp_fast(-90.0f), 1e-39f);
  EXPECT_TRUE(std::isnan(exp_fast(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, ExpSoftmaxEqualsExpAboveItsLimit) {
  for (float x = -87.0f; x < 87.9f; x += 0.0137f) EXPECT_EQ(exp_softmax(x), exp_fast(x)) << x;
  EXPECT_EQ(exp_softmax(0.0f), 1.0f);
  for (const float x : {-87.5f, -1e30f, -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(exp_softmax(x), exp_softmax(-87.0f));
  }
  EXPECT_TRUE(std::isnan(exp_softmax(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, ErfIsAccurateOverItsWholeRange) {
  const auto fast = [](float x) { return erf_fast(x); };
  const auto exact = [](double x) { return std::erf(x); };
  EXPECT_LE(largest_error(20.0f, 1009, fast, exact), 3);
}

TEST(VectorMath, ErfAtItsEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(erf_fast(0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(erf_fast(-0.0f)));
  EXPECT_EQ(erf_fast(kInfinity), 1.0f);
  EXPECT_EQ(erf_fast(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(erf_fast(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace tessera
