#pragma once

#include <chrono>

namespace tessera {

/// Returns the seconds of the machine's monotonic clock, which all its threads and processes share.
inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
