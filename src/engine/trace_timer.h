#pragma once

#include <memory>
#include <vector>

#include "device/event_pair.h"
#include "engine/trace.h"

namespace tessera {

/// Times work of an accelerator for a trace, by events in its streams.
class TraceTimer {
 public:
  /// Waits for `stream`, to relate the trace's clock to the device's. All arguments must outlive
  /// this.
  TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace);

  /// Begins a piece of work: all that is put into the stream from here to end(). Pieces do not
  /// overlap.
  void begin(Stream& stream);
  /// Ends the piece. The times of `event` are set by finish().
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
  double base_seconds_;  // the trace's time when base_ was recorded
  std::vector<Piece> pieces_;
};

}  // namespace tessera
