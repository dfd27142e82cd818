#pragma once

#include <cmath>

namespace tessera::testing {

/// The larger of two numbers, and NaN where one of them is: std::max would pass over it.
inline double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return a < b ? b : a;
}

}  // namespace tessera::testing
