#include "hardware/repeats.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"

namespace tessera {

void require_no_interrupt() {
  if (InterruptGuard::requested()) throw Error("interrupted: nothing was reported or written");
}

void Repeats::each(const std::function<void(bool)>& run) const {
  if (measured < 1 || warmup < 0) {
    throw Error("{} measured runs after {} of warm-up; give at least 1 and 0", measured, warmup);
  }
  for (int64_t i = 0; i < warmup; ++i) {
    require_no_interrupt();
    run(false);
  }
  for (int64_t i = 0; i < measured; ++i) {
    require_no_interrupt();
    if (before && !before(i)) {
      if (i == 0) throw Error("no run was measured: the first turn never came");
      break;
    }
    run(true);
  }
  require_no_interrupt();
}

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

std::string format_seconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

}  // namespace tessera
