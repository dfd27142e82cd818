#include "hardware/device_timer.h"

#include <iterator>

#include "base/interrupt.h"

namespace tessera {

DeviceTimer::DeviceTimer(Accelerator& accelerator)
    : accelerator_(accelerator), stream_(accelerator.make_stream()), events_(accelerator) {}

double DeviceTimer::seconds(const std::function<void(Stream&)>& work, int64_t runs) {
  events_.begin(*stream_);
  for (int64_t i = 0; i < runs; ++i) work(*stream_);
  events_.end(*stream_);
  stream_->synchronize();
  return events_.seconds();
}

std::vector<double> DeviceTimer::samples(const std::function<void(Stream&)>& work,
                                         const GemmBudget& budget) {
  constexpr double kShortest = 1e-3;  // seconds of a sample, far above the time of a launch
  constexpr int64_t kMostRuns = int64_t{1} << 14;
  seconds(work, 1);
  int64_t runs = 1;
  double sample = seconds(work, runs);
  double total = 0;
  while (sample < kShortest && runs < kMostRuns) {
    total += sample;
    sample = seconds(work, runs *= 2);
  }
  std::vector<double> times;
  while (true) {
    times.push_back(sample / static_cast<double>(runs));
    total += sample;
    const bool enough = std::ssize(times) >= budget.least_samples && total >= budget.seconds;
    if (enough || InterruptGuard::requested()) return times;
    sample = seconds(work, runs);
  }
}

}  // namespace tessera
