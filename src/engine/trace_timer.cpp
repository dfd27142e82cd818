#include "engine/trace_timer.h"

#include <utility>

namespace tessera {

TraceTimer::TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace)
    : accelerator_(accelerator), trace_(trace), base_(accelerator.make_event()) {
  stream.synchronize();
  // The clock is read before the event is recorded, because this thread may notice the event late.
  // So no work seems to end after its step.
  base_seconds_ = trace_.now();
  stream.record(*base_);
  base_->synchronize();
}

void TraceTimer::begin(Stream& stream) {
  pieces_.push_back({.times = EventPair(accelerator_), .event = {}});
  pieces_.back().times.begin(stream);
}

void TraceTimer::end(Stream& stream, TraceEvent event) {
  pieces_.back().times.end(stream);
  pieces_.back().event = std::move(event);
}

void TraceTimer::finish() {
  accelerator_.synchronize();
  for (Piece& piece : pieces_) {
    piece.event.start = base_seconds_ + piece.times.begin_since(*base_);
    piece.event.duration = piece.times.seconds();
    trace_.add(std::move(piece.event));
  }
  pieces_.clear();
}

}  // namespace tessera
