#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "device/accelerator.h"
#include "engine/action.h"

namespace tessera {

/// The executor's lanes (see Lane) on an accelerator: one stream for each lane, and events by which
/// lanes wait for each other. A step is a node's index in its segment.
class DeviceLanes {
 public:
  explicit DeviceLanes(Accelerator& accelerator);

  /// Returns the stream for the next step, whose work begins when the steps `awaited` are done. On
  /// other lanes than `compute` it begins when all work enqueued on the compute lane so far is
  /// done, too.
  Stream& begin(Lane lane, const LaneSteps& awaited);
  /// Ends a step, after its work was put into the stream.
  void end(Lane lane, int step);
  /// Makes the compute lane wait for the others. The next step may be 0 again.
  void join_all();
  /// Ends a capture of the compute lane's stream after an error. The next step may be 0 again.
  void abandon_capture() noexcept;

  Stream& compute() { return *compute_; }

 private:
  /// A lane other than `compute`.
  struct Other {
    std::shared_ptr<Stream> stream;               // made when it is first needed
    std::unique_ptr<Event> compute_reached;       // recorded before each step
    std::map<int, std::unique_ptr<Event>> steps;  // by step: recorded after it
    int last_step = -1;                           // -1 if there is nothing to join
  };
  Other& other(Lane lane) { return others_[static_cast<size_t>(lane)]; }

  Accelerator& accelerator_;
  std::shared_ptr<Stream> compute_;
  std::array<Other, kLanes> others_;  // by lane
};

/// A segment of a program in one of its frames. The actions of all micro-batches that use the frame
/// one after the other do the same work there.
struct FrameSegment {
  int program = 0;
  int frame = 0;
  size_t segment_index = 0;  ///< in ProgramMemory::order

  auto operator<=>(const FrameSegment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The graphs of an executor's actions on an accelerator. The plan fixes all addresses that an
/// action uses, so a graph that was captured once is valid for all later runs.
class CapturedActions {
 public:
  /// Runs an action, whose work `enqueue` puts on the lanes. The first run only calls `enqueue`,
  /// because operations create what they keep (such as libraries' plans) in their first run. The
  /// second run captures a graph and launches it, and later runs launch that graph. If a capture
  /// fails, its error is thrown, and the next run captures again.
  void run(const FrameSegment& action, DeviceLanes& lanes, const std::function<void()>& enqueue);

 private:
  struct Recording {
    bool has_run = false;
    std::unique_ptr<Graph> graph;  // null before the second run
  };

  std::map<FrameSegment, Recording> recordings_;
};

}  // namespace tessera
