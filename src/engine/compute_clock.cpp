#include "engine/compute_clock.h"

#include <algorithm>
#include <thread>

namespace tessera {

void ComputeClock::add(double seconds) {
  const std::chrono::duration<double> duration(seconds);
  done_ = std::max(Clock::now(), done_) + std::chrono::duration_cast<Clock::duration>(duration);
}

void ComputeClock::join() const { std::this_thread::sleep_until(done_); }

}  // namespace tessera
