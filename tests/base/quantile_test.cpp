#include "base/quantile.h"

#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Quantile, InterpolatesBetweenNeighbours) {
  const std::vector<double> numbers{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(numbers, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(numbers, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(numbers, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(quantile(numbers, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.3), 7);
}

}  // namespace
}  // namespace tessera
