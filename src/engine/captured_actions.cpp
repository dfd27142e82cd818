#include "engine/captured_actions.h"

namespace tessera {
namespace {

std::unique_ptr<Graph> capture(DeviceLanes& lanes, const std::function<void()>& issue) {
  lanes.compute().begin_capture();
  try {
    issue();
  } catch (...) {
    lanes.abandon_capture();
    throw;
  }
  return lanes.compute().end_capture();
}

}  // namespace

void CapturedActions::run(const FrameSegment& action, DeviceLanes& lanes,
                          const std::function<void()>& issue) {
  Recording& recording = recordings_[action];
  if (!recording.ran) {
    issue();
    recording.ran = true;
    return;
  }
  if (!recording.graph) recording.graph = capture(lanes, issue);
  lanes.compute().launch(*recording.graph);
}

}  // namespace tessera
