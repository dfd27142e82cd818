#pragma once

#include <vector>

#include "device/event_pair.h"

namespace tessera {

/// The time that an accelerator worked.
struct BusyTimes {
  double busy_seconds = 0;   ///< the time in which it worked
  double whole_seconds = 0;  ///< from the beginning of its first work to the end of its last work
  /// Returns the share of the time in which it waited for the host.
  double idle_share() const { return whole_seconds > 0 ? 1 - busy_seconds / whole_seconds : 0; }
};

/// Measures how long an accelerator works for an executor, by events before and after each action
/// and each copy. Gaps within an action count as work.
class BusyMeter {
 public:
  /// The accelerator must outlive the meter.
  explicit BusyMeter(Accelerator& accelerator) : accelerator_(accelerator) {}

  /// Begins a piece of work: all that is put into the stream from here to end(). All pieces follow
  /// each other in one stream.
  void begin(Stream& stream);
  void end(Stream& stream);
  /// Waits for all work and returns its times.
  BusyTimes finish();

 private:
  Accelerator& accelerator_;
  std::vector<EventPair> pieces_;
};

}  // namespace tessera
