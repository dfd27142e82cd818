#pragma once

#include <chrono>

namespace tessera {

/// Stands in for a compute lane: its work takes the time that it is said to take, and the processor
/// is free meanwhile. One thread uses a clock.
class ComputeClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Puts work of that many seconds behind the work before it. It begins now if that is done.
  /// Returns when it begins.
  Clock::time_point add(double seconds);
  /// Waits until all work is done.
  void join() const;
  /// Returns when all work is done.
  Clock::time_point done() const { return done_; }

 private:
  Clock::time_point done_{};  // when all work is done
};

}  // namespace tessera
