#include "engine/compute_clock.h"

#include <algorithm>
#include <thread>

namespace tessera {

ComputeClock::Clock::time_point ComputeClock::add(double seconds) {
  const std::chrono::duration<double> duration(seconds);
  const Clock::time_point begin = std::max(Clock::now(), done_);
  done_ = begin + std::chrono::duration_cast<Clock::duration>(duration);
  return begin;
}

void ComputeClock::join() const { std::this_thread::sleep_until(done_); }

}  // namespace tessera
