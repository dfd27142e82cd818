#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "device/accelerator.h"
#include "engine/joins.h"

namespace tessera {

/// A segment of a program in one of its frames.
struct FrameSegment {
  int program = 0;
  int frame = 0;
  size_t segment_index = 0;  ///< in ProgramMemory::order

  auto operator<=>(const FrameSegment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A step of a segment in a frame.
struct FrameStep {
  FrameSegment segment;
  int step = 0;

  auto operator<=>(const FrameStep&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The executor's lanes (see Lane) on an accelerator: one stream for each lane, and events by which
/// lanes wait for each other. A step is a node's index in its segment.
class DeviceLanes {
 public:
  explicit DeviceLanes(Accelerator& accelerator);

  /// Returns the stream for the next step, whose work begins when the steps `awaited` of the same
  /// action are done. On other lanes than `compute` it begins when all work enqueued on the compute
  /// lane so far is done, too.
  Stream& begin(Lane lane, const LaneSteps& awaited);
  /// Ends a step that its action awaits, after its work was put into the stream.
  void end(Lane lane, int step);
  /// Ends a step that outlasts its action, likewise. No capture may be under way.
  void end_outlasting(Lane lane, const FrameStep& step);
  /// Makes a stream of a lane wait for a step of an earlier action, if it has run.
  void await_earlier(Stream& stream, const FrameStep& step);
  /// Makes the compute lane wait for the others, apart from steps that outlast the action.
  void join_all();

  /// Captures the work that enqueue() puts on the lanes as a graph.
  std::unique_ptr<Graph> capture(const std::function<void()>& enqueue);

  Stream& compute() { return *compute_; }

 private:
  /// A lane other than `compute`.
  struct Other {
    std::shared_ptr<Stream> stream;               // made when it is first needed
    std::unique_ptr<Event> compute_reached;       // recorded before each step
    std::map<int, std::unique_ptr<Event>> steps;  // by step: recorded after it
    int last_step = -1;                           // -1 if there is nothing to join
    std::unique_ptr<Event> outlasted;             // recorded after each step that outlasts
    bool is_in_capture = false;                   // whether a step of the capture uses the lane
  };
  Other& other(Lane lane) { return others_[static_cast<size_t>(lane)]; }
  Event& outlasting_event(const FrameStep& step);

  Accelerator& accelerator_;
  std::shared_ptr<Stream> compute_;
  std::array<Other, kLanes> others_;                        // by lane
  std::map<FrameStep, std::unique_ptr<Event>> outlasting_;  // recorded after the step
  bool captures_ = false;
};

/// The steps of a segment in a frame that one action runs.
struct FrameSteps {
  FrameSegment segment;
  int begin = 0;
  int end = 0;

  auto operator<=>(const FrameSteps&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The graphs of an executor's actions on an accelerator. The actions of all
/// micro-batches that use a frame one after the other do the same work there. The plan fixes all
/// addresses that an action uses, so a graph that was captured once is valid for all later runs.
class CapturedActions {
 public:
  /// Runs an action, whose work `enqueue` puts on the lanes. The first run only calls `enqueue`,
  /// because operations create what they keep (such as libraries' plans) in their first run. The
  /// second run captures a graph and launches it, and later runs launch that graph. If a capture
  /// fails, its error is thrown, and the next run captures again.
  void run(const FrameSteps& action, DeviceLanes& lanes, const std::function<void()>& enqueue);

 private:
  struct Recording {
    bool has_run = false;
    std::unique_ptr<Graph> graph;  // null before the second run
  };

  std::map<FrameSteps, Recording> recordings_;
};

}  // namespace tessera
