#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The number of runs of a measurement.
struct Repeats {
  int64_t warmup = 2;     ///< runs before the measured ones; they do not count
  int64_t measured = 10;  ///< at least 1
  /// Called before each measured run with the run's number, from 0. It is not timed. If it returns
  /// false, the measurement ends early. If it is empty, all runs follow one another.
  std::function<bool(int64_t)> before;
  /// True if `before` waits while another program makes a run (see take_turn()). The work of the
  /// last run must be complete before that.
  bool turns = false;

  /// Calls `run(measured)` for each run, warm-up first. Throws Error if an InterruptGuard has
  /// caught a signal, if no run was measured, or if `measured` or `warmup` is too small.
  void each(const std::function<void(bool)>& run) const;
};

}  // namespace tessera
