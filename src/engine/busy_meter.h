#pragma once

#include <vector>

#include "device/event_pair.h"

namespace tessera {

/// How long an accelerator worked, and how long it took from the first work's beginning to the last
/// one's end.
struct BusyTimes {
  double busy_seconds = 0;
  double whole_seconds = 0;
  /// The share of the time in which it waited for the host.
  double idle_share() const { return whole_seconds > 0 ? 1 - busy_seconds / whole_seconds : 0; }
};

/// Measures how long an accelerator works while an executor gives it actions and copies, by events
/// before and after each of them. Gaps within an action are not seen: its work is launched as one
/// graph.
class BusyMeter {
 public:
  /// The accelerator must outlive this.
  explicit BusyMeter(Accelerator& accelerator) : accelerator_(accelerator) {}

  /// Begins a piece of work that is put into a stream from here to end(). All pieces follow each
  /// other in one stream.
  void begin(Stream& stream);
  void end(Stream& stream);
  /// Waits for all work and returns its times.
  BusyTimes finish();

 private:
  Accelerator& accelerator_;
  std::vector<EventPair> pieces_;
};

}  // namespace tessera
