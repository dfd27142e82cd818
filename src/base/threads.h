#pragma once

#include <algorithm>
#include <thread>

namespace tessera {

/// The number of threads that a setting stands for: itself, or all cores of the machine for 0.
inline int threads_or_all(int wanted) {
  if (wanted > 0) return wanted;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace tessera
