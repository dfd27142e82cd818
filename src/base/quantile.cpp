#include "base/quantile.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace tessera {

double quantile(std::span<const double> numbers, double fraction) {
  TESSERA_CHECK(!numbers.empty() && fraction >= 0 && fraction <= 1, "quantile {} of {} numbers",
                fraction, numbers.size());
  std::vector<double> sorted(numbers.begin(), numbers.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - std::floor(position)) * (sorted[above] - sorted[below]);
}

}  // namespace tessera
