#pragma once

#include <span>

namespace tessera {

/// Returns the value below which `fraction` of the numbers lie, interpolated between neighbours.
/// 0.5 gives the median. There must be at least one number.
double quantile(std::span<const double> numbers, double fraction);

}  // namespace tessera
