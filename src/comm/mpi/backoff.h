#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace tessera {

/// The waits between polls, so that polling does not keep a core from other threads for long. At
/// first they only let other threads run: MPI moves data only while this process polls. Then they
/// sleep.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins a wait for so many bytes. While they may be under way, it does not sleep.
  explicit Backoff(int64_t bytes = 0)
      : yields_until_(begun_ + std::chrono::milliseconds(2) + std::chrono::nanoseconds(bytes)) {}

  void wait() {
    if (Clock::now() < yields_until_) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  /// Returns the time since this object was made.
  std::chrono::nanoseconds waited() const { return Clock::now() - begun_; }

 private:
  Clock::time_point begun_ = Clock::now();
  Clock::time_point yields_until_;
};

}  // namespace tessera
