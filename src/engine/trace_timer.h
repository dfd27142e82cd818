#pragma once

#include <memory>
#include <vector>

#include "device/event_pair.h"
#include "engine/trace.h"

namespace tessera {

/// Times work of an accelerator for a trace, by events in the streams that it runs in.
class TraceTimer {
 public:
  /// Waits for `stream`, to learn where the trace's clock stands by the device's clock. All must
  /// outlive this.
  TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace);

  /// Begins a piece of work that is put into a stream from here to end(). Pieces do not overlap.
  void begin(Stream& stream);
  /// Ends it. The times of `event` are set later.
  void end(Stream& stream, TraceEvent event);
  /// Waits for all work and adds its events to the trace.
  void finish();

 private:
  struct Piece {
    EventPair times;
    TraceEvent event;
  };

  Accelerator& accelerator_;
  Trace& trace_;
  std::unique_ptr<Event> base_;
  double base_seconds_;  // when base_ was asked for, since the trace began
  std::vector<Piece> pieces_;
};

}  // namespace tessera
