#pragma once

#include <memory>

#include "device/accelerator.h"

namespace tessera {

/// Two events that time work in a stream: one before the work and one after it.
class EventPair {
 public:
  explicit EventPair(Accelerator& accelerator)
      : begin_(accelerator.make_event()), end_(accelerator.make_event()) {}

  void begin(Stream& stream) { stream.record(*begin_); }
  void end(Stream& stream) { stream.record(*end_); }

  /// Returns the seconds of the work, once it is done.
  double seconds() const { return end_->seconds_since(*begin_); }
  /// Returns the seconds from an earlier event to the beginning of the work, once both are reached.
  double begin_since(const Event& earlier) const { return begin_->seconds_since(earlier); }
  /// Returns the seconds from an earlier event to the end of the work, once both are reached.
  double end_since(const Event& earlier) const { return end_->seconds_since(earlier); }
  /// Returns the seconds from the beginning of an earlier pair's work to that of this work.
  double begin_since(const EventPair& earlier) const { return begin_since(*earlier.begin_); }

 private:
  std::unique_ptr<Event> begin_, end_;
};

}  // namespace tessera
