#include "engine/device_lanes.h"

namespace tessera {

DeviceLanes::DeviceLanes(Accelerator& accelerator)
    : accelerator_(accelerator), compute_(accelerator.make_stream()) {}

Stream& DeviceLanes::begin(Lane lane, int awaited_step) {
  if (lane == Lane::compute) {
    if (awaited_step >= 0) compute_->wait(*network_steps_.at(awaited_step));
    return *compute_;
  }
  if (!network_) {
    network_ = accelerator_.make_stream(Priority::high);
    compute_reached_ = accelerator_.make_event();
  }
  compute_->record(*compute_reached_);
  network_->wait(*compute_reached_);
  return *network_;
}

void DeviceLanes::end(Lane lane, int step) {
  if (lane == Lane::compute) return;  // begin() of the network lane records an event when needed
  std::unique_ptr<Event>& event = network_steps_[step];
  if (!event) event = accelerator_.make_event();
  network_->record(*event);
  last_network_step_ = step;
}

void DeviceLanes::join_all() {
  if (last_network_step_ < 0) return;
  compute_->wait(*network_steps_.at(last_network_step_));
  last_network_step_ = -1;
}

void DeviceLanes::abandon_capture() noexcept {
  compute_->abandon_capture();
  last_network_step_ = -1;
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
