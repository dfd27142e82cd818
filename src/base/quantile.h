#pragma once

#include <span>

namespace tessera {

/// Returns the value that `fraction` of the numbers are below, interpolated between neighbours. 0.5
/// gives the median. There must be at least one number.
double quantile(std::span<const double> numbers, double fraction);

}  // namespace tessera
