#pragma once

#include <functional>
#include <vector>

#include "device/event_pair.h"
#include "hardware/gemm_time.h"

namespace tessera {

/// Times work on an accelerator by its own events, on a stream of its own.
class DeviceTimer {
 public:
  explicit DeviceTimer(Accelerator& accelerator);

  Accelerator& accelerator() const { return accelerator_; }
  Stream& stream() const { return *stream_; }

  /// Returns the seconds of one run of `work`, one number for each sample. Each call of `work` puts
  /// one run into the stream that it is given. Short work runs several times in a sample. The first
  /// run, which may make plans, does not count, nor do those that find the number of runs in a
  /// sample. A signal that an InterruptGuard caught ends the samples early.
  std::vector<double> samples(const std::function<void(Stream&)>& work, const GemmBudget& budget);

 private:
  /// Returns the seconds of `runs` runs.
  double seconds(const std::function<void(Stream&)>& work, int64_t runs);

  Accelerator& accelerator_;
  std::shared_ptr<Stream> stream_;
  EventPair events_;
};

}  // namespace tessera
