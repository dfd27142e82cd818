#pragma once

#include <span>

namespace tessera {

/// Returns the quantile of the numbers at `fraction`, from 0 (the least) through 0.5 (the median)
/// to 1 (the largest), interpolated between neighbours. There must be at least one number.
double quantile(std::span<const double> numbers, double fraction);

}  // namespace tessera
