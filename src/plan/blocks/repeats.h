#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The number of runs of a measurement, and what happens before each run.
struct Repeats {
  int64_t warmup = 2;     ///< runs before the measured ones; they do not count
  int64_t measured = 10;  ///< at least 1
  /// A function that is called before each measured run, with the run's index, and is not timed. If
  /// it returns false, the measurement ends early. It may be empty.
  std::function<bool(int64_t)> before;
  /// True if `before` waits while another program makes a run (see take_turn()). An asynchronous
  /// run must then be complete before `before` is called.
  bool turns = false;

  /// Calls run(is_measured) for each run, warm-up first. Throws Error if an InterruptGuard has
  /// caught a signal, if no run was measured, or if `measured` or `warmup` is too small.
  void each(const std::function<void(bool)>& run) const;
};

}  // namespace tessera
