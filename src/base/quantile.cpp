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
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

}  // namespace tessera
