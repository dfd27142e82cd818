#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "engine/device_lanes.h"

namespace tessera {

/// What an action does, whichever its micro-batch: a segment of a program in one of its frames.
struct FrameSegment {
  int program = 0;
  int frame = 0;
  size_t segment = 0;  ///< its position in the plan's order

  auto operator<=>(const FrameSegment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The work of an executor's actions on an accelerator, captured as graphs. An action's addresses
/// are the plan's, so a graph holds for all later runs of it.
class CapturedActions {
 public:
  /// Runs an action, whose work `issue` puts into the lanes: as it is the first time, since
  /// operations then make what they keep; captured as a graph, which is launched, the second time;
  /// and by that graph from then on. If a capture fails the error comes out, and the next run
  /// captures anew.
  void run(const FrameSegment& action, DeviceLanes& lanes, const std::function<void()>& issue);

 private:
  struct Recording {
    bool ran = false;
    std::unique_ptr<Graph> graph;  // null before the second run
  };

  std::map<FrameSegment, Recording> recordings_;
};

}  // namespace tessera
