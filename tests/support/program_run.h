#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "tensor/tensor.h"

namespace tessera::testing {

/// A program run on given tensors. Weights, main gradients and states are the tensors themselves;
/// inputs are copied in before the segment that uses them. Outputs are copied out when the segment
/// that makes them has run.
class ProgramRun {
 public:
  /// Refers to both.
  ProgramRun(const Program& program, Runtime& runtime) : program_(program), runtime_(runtime) {}

  /// Gives a value its tensor: before the first run, or an input before any.
  void bind(Value value, const Tensor& tensor) {
    const ValueInfo& info = program_.info(value);
    TESSERA_CHECK(info.kind != ValueKind::computed, "{} is computed, not bound", info.name);
    TESSERA_CHECK(tensor.shape() == info.spec.shape && tensor.dtype() == info.spec.dtype,
                  "{} is {}, a tensor of {} was bound to it", info.name, info.spec.shape.text(),
                  tensor.shape().text());
    if (info.kind != ValueKind::input) {
      TESSERA_CHECK(!executor_, "{} was bound after a run", info.name);
      if (runtime_.accelerator() == nullptr) given_.insert_or_assign(info.name, tensor);
    }
    tensors_.insert_or_assign(value.id, tensor);
  }

  void forward() { run(Segment::forward); }
  void backward() { run(Segment::backward); }
  void run() {
    forward();
    backward();
    read_bound();
  }

  /// A bound value, or an output of the last run.
  const Tensor& operator[](Value value) {
    const auto found = tensors_.find(value.id);
    return found != tensors_.end() ? found->second : executor().tensor(value);
  }

  /// On a device: copies what the run changed into the tensors that were bound.
  void read_bound() {
    if (runtime_.accelerator() == nullptr) return;
    for (const auto& [id, tensor] : tensors_) {
      const Value value{id};
      if (!is_kept(value)) continue;
      readback(executor().tensor(value), bytes_of(tensor));
    }
  }

  /// Fills the memory of everything computed with the bytes of a NaN: a kernel that reads what it
  /// has not written shows it.
  void poison() {
    for (size_t id = 0; id < program_.values().size(); ++id) {
      const Value value{static_cast<int>(id)};
      if (program_.info(program_.base(value)).kind != ValueKind::computed) continue;
      if (executor().plan().programs[0].values[0][id] < 0) continue;
      const Tensor& tensor = executor_->tensor(value);
      const std::vector<std::byte> ones(static_cast<size_t>(tensor.bytes()), std::byte{0xff});
      upload(ones, tensor);
    }
  }

  /// Has rows that operations do not write hold zeros, as an observer of the executor finds them.
  void clear_unused_rows() {
    executor().set_observer([](const Program&, const Node&, std::span<const Tensor>) {});
  }

  Executor& executor() {
    if (!executor_) {
      constexpr Action kPasses[] = {{.segment = Segment::forward}, {.segment = Segment::backward}};
      executor_.emplace(std::vector{&program_}, kPasses, runtime_, given_);
      if (runtime_.accelerator() != nullptr) upload_bound();
    }
    return *executor_;
  }

 private:
  bool is_kept(Value value) const {
    const ValueKind kind = program_.info(value).kind;
    return kind != ValueKind::input && kind != ValueKind::computed;
  }

  void upload_bound() {
    for (const auto& [id, tensor] : tensors_) {
      if (is_kept(Value{id})) upload(bytes_of(tensor), executor_->tensor(Value{id}));
    }
  }

  static std::span<std::byte> bytes_of(const Tensor& tensor) {
    return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
  }

  void run(Segment segment) {
    for (const Value input : executor().inputs(segment)) {
      const auto found = tensors_.find(input.id);
      TESSERA_CHECK(found != tensors_.end(), "{} was not bound", program_.info(input).name);
      upload(bytes_of(found->second), executor_->tensor(input));
    }
    executor_->run({.segment = segment});
    executor_->synchronize();                    // the caller has the tensors
    for (const Node& node : program_.nodes()) {  // views too, which no segment has
      const bool backward = node.phase == Phase::backward || node.phase == Phase::recompute;
      if (backward != (segment == Segment::backward)) continue;
      for (const Value output : node.outputs) {
        if (!program_.is_output(output)) continue;
        const Tensor& made = executor_->tensor(output);
        const Tensor copy(made.shape(), made.dtype());
        readback(made, bytes_of(copy));
        tensors_.insert_or_assign(output.id, copy);
      }
    }
  }

  const Program& program_;
  Runtime& runtime_;
  GivenTensors given_;
  std::map<int, Tensor> tensors_;
  std::optional<Executor> executor_;
};

}  // namespace tessera::testing
