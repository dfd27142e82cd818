#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_transport.h"
#include "engine/action.h"
#include "program/operation.h"
#include "support/whole_labels.h"
#include "tensor/alignment.h"

namespace tessera::testing {

inline constexpr Action kWholeProgram{.segment = Segment::whole};

/// The base of operations of a lane whose output is like their input.
class LaneOperation : public Operation {
 public:
  LaneOperation(std::string name, Lane lane) : name_(std::move(name)), lane_(lane) {}
  std::string_view name() const override { return name_; }
  std::string labels(std::span<const Spec> inputs) const override {
    return whole_labels(inputs, {inputs[0].shape.rank()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }

 private:
  std::string name_;
  Lane lane_;
};

/// Gives out its input plus a number, after it has called `work`.
class LaneStep final : public LaneOperation {
 public:
  explicit LaneStep(Lane lane, float added = 0, std::function<void()> work = {})
      : LaneOperation("lane_step", lane), added_(added), work_(std::move(work)) {}
  void run(const Execution& execution) const override {
    if (work_) work_();
    const std::span<const float> from = execution.inputs[0].values<float>();
    const std::span<float> to = execution.outputs[0].values<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] + added_;
  }

 private:
  float added_;
  std::function<void()> work_;
};

/// Sums its input over the ranks of some axes, on a lane. The addends are copied into the workspace
/// first. With `in_place` the input gets the sum, otherwise the output, which may take its memory.
/// Calls `before` first.
class LaneSum final : public Operation {
 public:
  LaneSum(Lane lane, std::vector<Axis> axes, int ranks, std::string call, bool in_place = false,
          std::function<void()> before = {})
      : lane_(lane),
        axes_(std::move(axes)),
        ranks_(ranks),
        call_(std::move(call)),
        in_place_(in_place),
        before_(std::move(before)) {}
  std::string_view name() const override { return "lane_sum"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return in_place_ ? whole_labels(inputs, {}, {0}) : whole_labels(inputs, {1});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return in_place_ ? std::vector<Spec>{} : std::vector<Spec>{inputs[0]};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }
  std::vector<std::vector<Axis>> group_axes() const override { return {axes_}; }
  std::vector<int> updated_inputs() const override {
    return in_place_ ? std::vector{0} : std::vector<int>{};
  }
  int in_place_input(int) const override { return in_place_ ? -1 : 0; }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const int64_t staged =
        target.device == Device::cpu
            ? 0
            : all_reduce_workspace(inputs[0].shape.elements(), inputs[0].dtype, ranks_);
    return aligned_bytes(inputs[0].bytes()) + staged;
  }
  void run(const Execution& execution) const override {
    if (before_) before_();
    const Tensor& from = execution.inputs[0];
    const Tensor addends =
        Tensor::wrap(execution.workspace.data(), from.shape(), from.dtype(), from.accelerator());
    if (execution.stream != nullptr) {
      execution.stream->copy(addends.address(), from.address(), from.bytes());
    } else {
      addends.copy_from(from);
    }
    const auto staged = static_cast<size_t>(aligned_bytes(from.bytes()));
    execution.group().all_reduce(
        call_, addends, in_place_ ? from : execution.outputs[0], Reduction::sum,
        {.stream = execution.stream, .workspace = execution.workspace.subspan(staged)});
  }

 private:
  Lane lane_;
  std::vector<Axis> axes_;
  int ranks_;
  std::string call_;
  bool in_place_;
  std::function<void()> before_;
};

/// Computes 0.5 a + b, in the memory of a if it can. With `in_place` that is a's new value.
class LaneCompute final : public Operation {
 public:
  explicit LaneCompute(bool in_place = false) : in_place_(in_place) {}
  static float computed(float a, float b) { return 0.5F * a + b; }
  std::string_view name() const override { return "lane_compute"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return in_place_ ? whole_labels(inputs, {}, {0}) : whole_labels(inputs, {1});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return in_place_ ? std::vector<Spec>{} : std::vector<Spec>{inputs[0]};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::vector<int> updated_inputs() const override {
    return in_place_ ? std::vector{0} : std::vector<int>{};
  }
  int in_place_input(int) const override { return in_place_ ? -1 : 0; }
  void run(const Execution& execution) const override {
    const auto* const a = execution.inputs[0].pointer<float>();
    const auto* const b = execution.inputs[1].pointer<float>();
    const Tensor& result = in_place_ ? execution.inputs[0] : execution.outputs[0];
    const auto compute = [a, b, to = result.pointer<float>(), count = result.elements()] {
      for (int64_t i = 0; i < count; ++i) to[i] = computed(a[i], b[i]);
    };
    if (execution.stream != nullptr) return execution.stream->enqueue(compute);
    compute();
  }

 private:
  bool in_place_;
};

}  // namespace tessera::testing
