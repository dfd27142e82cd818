#pragma once

#include <memory>

#include "device/accelerator.h"

namespace tessera {

/// Events of a device before and after a piece of work in a stream, which time it.
class EventPair {
 public:
  explicit EventPair(Accelerator& accelerator)
      : begin_(accelerator.make_event()), end_(accelerator.make_event()) {}

  void begin(Stream& stream) { stream.record(*begin_); }
  void end(Stream& stream) { stream.record(*end_); }

  /// The seconds of the work, once it is done.
  double seconds() const { return end_->seconds_since(*begin_); }
  /// The seconds from another event to the work's beginning, once both have happened.
  double begin_since(const Event& event) const { return begin_->seconds_since(event); }
  /// The seconds from the beginning of an earlier pair's work to that of this one's.
  double since(const EventPair& earlier) const { return begin_since(*earlier.begin_); }

 private:
  std::unique_ptr<Event> begin_, end_;
};

}  // namespace tessera
