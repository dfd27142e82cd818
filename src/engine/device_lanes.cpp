#include "engine/device_lanes.h"

namespace tessera {

DeviceLanes::DeviceLanes(Accelerator& accelerator)
    : accelerator_(accelerator), compute_(accelerator.make_stream()) {}

Stream& DeviceLanes::begin(Lane lane, const LaneSteps& awaited) {
  Stream* stream = compute_.get();
  if (lane != Lane::compute) {
    Other& own = other(lane);
    if (!own.stream) {
      own.stream = accelerator_.make_stream(Priority::high);
      own.compute_reached = accelerator_.make_event();
    }
    stream = own.stream.get();
    compute_->record(*own.compute_reached);
    stream->wait(*own.compute_reached);
  }
  for (size_t i = 0; i < kLanes; ++i) {
    if (awaited[i] >= 0) stream->wait(*others_[i].steps.at(awaited[i]));
  }
  return *stream;
}

void DeviceLanes::end(Lane lane, int step) {
  if (lane == Lane::compute) return;  // begin() of the other lanes records an event when needed
  Other& own = other(lane);
  std::unique_ptr<Event>& event = own.steps[step];
  if (!event) event = accelerator_.make_event();
  own.stream->record(*event);
  own.last_step = step;
}

void DeviceLanes::join_all() {
  for (Other& other : others_) {
    if (other.last_step >= 0) compute_->wait(*other.steps.at(other.last_step));
    other.last_step = -1;
  }
}

void DeviceLanes::abandon_capture() noexcept {
  compute_->abandon_capture();
  for (Other& other : others_) other.last_step = -1;
}

void CapturedActions::run(const FrameSegment& action, DeviceLanes& lanes,
                          const std::function<void()>& enqueue) {
  Recording& recording = recordings_[action];
  if (!recording.has_run) {
    enqueue();
    recording.has_run = true;
    return;
  }
  if (!recording.graph) {
    lanes.compute().begin_capture();
    try {
      enqueue();
    } catch (...) {
      lanes.abandon_capture();
      throw;
    }
    recording.graph = lanes.compute().end_capture();
  }
  lanes.compute().launch(*recording.graph);
}

}  // namespace tessera
