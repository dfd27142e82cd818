#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include <gtest/gtest.h>

#include "support/larger.h"

namespace tessera::testing {

inline constexpr double kParityTolerance = 1e-5;  // of a tensor's largest entry
/// Two computations in bf16 round in different places: how far one's error may be above the
/// other's. In models this small a single token that goes to another expert, or a single entry that
/// passes a clipping limit, is much of the error.
inline constexpr double kRoundingSlack = 2;

/// The largest difference over the largest expected entry.
inline double largest_error(std::span<const double> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    difference = larger(difference, std::abs(found[i] - static_cast<double>(expected[i])));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  EXPECT_GT(largest, 0);
  return difference / largest;
}

/// The root of the mean squared difference over that of the expected entries.
inline double mean_error(std::span<const double> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    difference += std::pow(found[i] - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(difference / size);
}

}  // namespace tessera::testing
