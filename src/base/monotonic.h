#pragma once

#include <chrono>

namespace tessera {

/// Returns the seconds of the machine's monotonic clock, which all its threads and processes share:
/// at a moment, or now.
inline double monotonic_seconds_at(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
inline double monotonic_seconds() { return monotonic_seconds_at(std::chrono::steady_clock::now()); }

}  // namespace tessera
