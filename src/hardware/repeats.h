#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// How often something is measured.
struct Repeats {
  int64_t warmup = 2;     ///< runs before the measured ones, which nothing counts
  int64_t measured = 10;  ///< at least 1
  /// Called before each measured run with its number from 0, outside of what is timed; false ends
  /// the measurement early. Left out: all runs follow each other.
  std::function<bool(int64_t)> before;

  /// Calls `run(measured)` for each run, warm-up first. A signal that an InterruptGuard caught ends
  /// it with an Error. Throws Error when no run at all was measured.
  void each(const std::function<void(bool)>& run) const;
};

/// Throws Error when a signal has come that an InterruptGuard caught: between measurements of which
/// nothing is reported unless all are done.
void require_no_interrupt();

/// The value below which `fraction` of the numbers lie, interpolated between neighbours; the median
/// for 0.5. There is at least one number.
double quantile(std::span<const double> numbers, double fraction);

/// 0.01234 -> "12.34 ms": four significant digits.
std::string format_seconds(double seconds);

}  // namespace tessera
