#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <gtest/gtest.h>

namespace tessera::testing {

/// The largest difference of two lists of numbers over the largest number in the first. Not a
/// number if a difference is none, and then less than nothing. It shares nothing with what verify
/// computes.
inline double relative_difference(std::span<const double> expected, std::span<const double> found) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double apart = std::abs(expected[i] - found[i]);
    if (std::isnan(apart)) return apart;
    difference = std::max(difference, apart);
  }
  return difference / std::max(largest, 1e-300);
}

}  // namespace tessera::testing
