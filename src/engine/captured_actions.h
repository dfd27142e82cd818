#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "engine/device_lanes.h"

namespace tessera {

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
