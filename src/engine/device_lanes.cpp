#include "engine/device_lanes.h"

namespace tessera {

DeviceLanes::DeviceLanes(Accelerator& accelerator)
    : accelerator_(accelerator), compute_(accelerator.make_stream()) {}

Stream& DeviceLanes::begin(Lane lane, int awaited_step) {
  if (lane == Lane::compute) {
    if (awaited_step >= 0) compute_->wait(*sent_.at(awaited_step));
    return *compute_;
  }
  if (!network_) {
    network_ = accelerator_.make_stream(Priority::high);
    computed_ = accelerator_.make_event();
  }
  compute_->record(*computed_);
  network_->wait(*computed_);
  return *network_;
}

void DeviceLanes::end(Lane lane, int step) {
  if (lane == Lane::compute) return;  // begin() of the network lane records an event when needed
  std::unique_ptr<Event>& event = sent_[step];
  if (!event) event = accelerator_.make_event();
  network_->record(*event);
  last_sent_ = step;
}

void DeviceLanes::join_all() {
  if (last_sent_ < 0) return;
  compute_->wait(*sent_.at(last_sent_));
  last_sent_ = -1;
}

void DeviceLanes::abandon_capture() noexcept {
  compute_->abandon_capture();
  last_sent_ = -1;
}

void CapturedActions::run(const FrameSegment& action, DeviceLanes& lanes,
                          const std::function<void()>& enqueue) {
  Recording& recording = recordings_[action];
  if (!recording.ran) {
    enqueue();
    recording.ran = true;
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
