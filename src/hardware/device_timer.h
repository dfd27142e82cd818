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

  /// Returns the seconds of one run of `work`, which puts a run into the stream it is given: one
  /// number for each sample. Short work runs several times in a sample. The first run, which may
  /// make plans, and those that find how many a sample takes do not count. A signal that an
  /// InterruptGuard caught ends the samples early.
  std::vector<double> samples(const std::function<void(Stream&)>& work, const GemmBudget& budget);

 private:
  /// The seconds of `runs` runs.
  double seconds(const std::function<void(Stream&)>& work, int64_t runs);

  Accelerator& accelerator_;
  std::shared_ptr<Stream> stream_;
  EventPair events_;
};

}  // namespace tessera
