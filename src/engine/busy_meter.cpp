#include "engine/busy_meter.h"

namespace tessera {

void BusyMeter::begin(Stream& stream) {
  pieces_.emplace_back(accelerator_);
  pieces_.back().begin(stream);
}

void BusyMeter::end(Stream& stream) { pieces_.back().end(stream); }

BusyTimes BusyMeter::finish() {
  accelerator_.synchronize();
  BusyTimes times;
  for (const EventPair& piece : pieces_) times.busy_seconds += piece.seconds();
  if (!pieces_.empty()) {
    times.whole_seconds = pieces_.back().begin_since(pieces_.front()) + pieces_.back().seconds();
  }
  pieces_.clear();
  return times;
}

}  // namespace tessera
