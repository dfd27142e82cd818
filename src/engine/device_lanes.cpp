#include "engine/device_lanes.h"

#include <utility>

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
      own.outlasted = accelerator_.make_event();
    }
    stream = own.stream.get();
    compute_->record(*own.compute_reached);
    stream->wait(*own.compute_reached);
    // A graph runs apart from what is on the lane's stream already.
    if (captures_ && !std::exchange(own.is_in_capture, true)) stream->wait_external(*own.outlasted);
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

void DeviceLanes::end_outlasting(Lane lane, const FrameStep& step) {
  other(lane).stream->record(outlasting_event(step));
  other(lane).stream->record(*other(lane).outlasted);
}

void DeviceLanes::await_earlier(Stream& stream, const FrameStep& step) {
  const Event& event = outlasting_event(step);
  captures_ ? stream.wait_external(event) : stream.wait(event);
}

Event& DeviceLanes::outlasting_event(const FrameStep& step) {
  std::unique_ptr<Event>& event = outlasting_[step];
  if (!event) event = accelerator_.make_event();
  return *event;
}

void DeviceLanes::join_all() {
  for (Other& other : others_) {
    if (other.last_step >= 0) compute_->wait(*other.steps.at(other.last_step));
    other.last_step = -1;
  }
}

std::unique_ptr<Graph> DeviceLanes::capture(const std::function<void()>& enqueue) {
  compute_->begin_capture();
  captures_ = true;
  for (Other& other : others_) other.is_in_capture = false;
  try {
    enqueue();
  } catch (...) {
    captures_ = false;
    compute_->abandon_capture();
    for (Other& other : others_) other.last_step = -1;
    throw;
  }
  captures_ = false;
  return compute_->end_capture();
}

void CapturedActions::run(const FrameSteps& action, DeviceLanes& lanes,
                          const std::function<void()>& enqueue) {
  Recording& recording = recordings_[action];
  if (!recording.has_run) {
    enqueue();
    recording.has_run = true;
    return;
  }
  if (!recording.graph) recording.graph = lanes.capture(enqueue);
  lanes.compute().launch(*recording.graph);
}

}  // namespace tessera
