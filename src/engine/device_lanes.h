#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "device/accelerator.h"
#include "program/operation.h"

namespace tessera {

/// The executor's lanes on an accelerator: one stream for each lane, and events between them. A
/// step is a node's index in its segment.
class DeviceLanes {
 public:
  explicit DeviceLanes(Accelerator& accelerator);

  /// Returns the stream for the next step. On the compute lane its work begins when step `join` of
  /// the network lane is done, if `join` is not -1. On the network lane it begins when all work
  /// enqueued on the compute lane so far is done.
  Stream& begin(Lane lane, int join);
  /// Ends a step, whose work is now in the stream.
  void end(Lane lane, int step);
  /// Makes the compute lane wait for the network lane. Steps are counted anew from here.
  void join_all();
  /// Ends a capture of the compute lane's stream that an error interrupted. Steps are counted anew.
  void abandon_capture() noexcept;

  Stream& compute() { return *compute_; }

 private:
  Accelerator& accelerator_;
  std::shared_ptr<Stream> compute_;
  std::shared_ptr<Stream> network_;             // made when it is first needed
  std::unique_ptr<Event> computed_;             // recorded before each step of the network lane
  std::map<int, std::unique_ptr<Event>> sent_;  // by step of the network lane
  int last_sent_ = -1;  // step of the network lane; -1 if there is nothing to join
};

/// The work of an action, apart from its micro-batch: a segment of a program in one of its frames.
struct FrameSegment {
  int program = 0;
  int frame = 0;
  size_t segment = 0;  ///< its index in the plan's order

  auto operator<=>(const FrameSegment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The work of an executor's actions on an accelerator, captured as graphs. The addresses in an
/// action are the plan's, so its graph is valid for all later runs.
class CapturedActions {
 public:
  /// Runs an action. `issue` enqueues its work on the lanes. The first run calls `issue` directly,
  /// because operations then create what they keep. The second run captures a graph and launches
  /// it, and later runs launch that graph. If a capture fails, its error is thrown, and the next
  /// run captures again.
  void run(const FrameSegment& action, DeviceLanes& lanes, const std::function<void()>& issue);

 private:
  struct Recording {
    bool ran = false;
    std::unique_ptr<Graph> graph;  // null before the second run
  };

  std::map<FrameSegment, Recording> recordings_;
};

}  // namespace tessera
