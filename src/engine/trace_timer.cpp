#include "engine/trace_timer.h"

#include <utility>

namespace tessera {

TraceTimer::TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace)
    : accelerator_(accelerator), trace_(trace), base_(accelerator.make_event()) {
  stream.synchronize();
  stream.record(*base_);
  base_->synchronize();
  base_seconds_ = trace_.now();
}

void TraceTimer::begin(Stream& stream) {
  pieces_.push_back(
      {.begin = accelerator_.make_event(), .end = accelerator_.make_event(), .event = {}});
  stream.record(*pieces_.back().begin);
}

void TraceTimer::end(Stream& stream, TraceEvent event) {
  stream.record(*pieces_.back().end);
  pieces_.back().event = std::move(event);
}

void TraceTimer::finish() {
  accelerator_.synchronize();
  for (Piece& piece : pieces_) {
    piece.event.start = base_seconds_ + piece.begin->seconds_since(*base_);
    piece.event.duration = piece.end->seconds_since(*piece.begin);
    trace_.add(std::move(piece.event));
  }
  pieces_.clear();
}

}  // namespace tessera
