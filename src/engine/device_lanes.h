#pragma once

#include <map>
#include <memory>

#include "device/accelerator.h"
#include "program/operation.h"

namespace tessera {

/// The executor's lanes on an accelerator: a stream each, with events between them. A step is a
/// node's position in its segment.
class DeviceLanes {
 public:
  explicit DeviceLanes(Accelerator& accelerator);

  /// The stream for the next step. On the compute lane its work begins when step `join` of the
  /// network lane is done, if that is not -1. On the network lane it begins when everything is done
  /// that the compute lane was given so far.
  Stream& begin(Lane lane, int join);
  /// Ends a step, whose work is now in the stream.
  void end(Lane lane, int step);
  /// Lets the compute lane wait for the network lane. Steps count anew from here.
  void join_all();
  /// Ends a capture of the compute lane's stream where an error has left it. Steps count anew.
  void abandon_capture() noexcept;

  Stream& compute() { return *compute_; }

 private:
  Accelerator& accelerator_;
  std::shared_ptr<Stream> compute_;
  std::shared_ptr<Stream> network_;             // made when it is first needed
  std::unique_ptr<Event> computed_;             // recorded before each step of the network lane
  std::map<int, std::unique_ptr<Event>> sent_;  // by step of the network lane
  int last_sent_ = -1;                          // step; -1 if there is nothing to join
};

}  // namespace tessera
