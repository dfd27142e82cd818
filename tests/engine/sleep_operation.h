#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "engine/lane_operations.h"

namespace tessera::testing {

/// Takes a known time of its stream on the emulated device, or none.
class Sleep final : public LaneOperation {
 public:
  Sleep(std::string name, Lane lane, std::chrono::milliseconds time)
      : LaneOperation(std::move(name), lane), time_(time) {}
  void run(const Execution& execution) const override {
    auto* const to = execution.outputs[0].pointer<float>();
    execution.stream->enqueue([to, time = time_] {
      std::this_thread::sleep_for(time);
      *to = 1;
    });
  }

 private:
  std::chrono::milliseconds time_;
};

}  // namespace tessera::testing
