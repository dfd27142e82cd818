#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program/operation.h"
#include "support/whole_labels.h"

namespace tessera::testing {

/// Takes a known time of its stream on the emulated device, or none.
class Sleep final : public Operation {
 public:
  Sleep(std::string name, Lane lane, std::chrono::milliseconds time)
      : name_(std::move(name)), lane_(lane), time_(time) {}
  std::string_view name() const override { return name_; }
  std::string labels(std::span<const Spec> inputs) const override {
    return whole_labels(inputs, {inputs[0].shape.rank()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }
  void run(const Execution& execution) const override {
    auto* const to = execution.outputs[0].pointer<float>();
    execution.stream->enqueue([to, time = time_] {
      std::this_thread::sleep_for(time);
      *to = 1;
    });
  }

 private:
  std::string name_;
  Lane lane_;
  std::chrono::milliseconds time_;
};

}  // namespace tessera::testing
