#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/program_run.h"
#include "support/run_program.h"
#include "tensor/tensor.h"

namespace tessera::testing {

/// A program on given numbers, run forward once: for results that are compared exactly.
class SmallProgram {
 public:
  explicit SmallProgram(int threads = 2, Kernels kernels = Kernels::fast,
                        const std::optional<Emulation>& emulation = {})
      : runtime_(make_runtime(host_target(threads, kernels), emulation)) {}

  Builder& builder() { return builder_; }

  template <typename T>
  Value input(const Shape& shape, const std::vector<T>& values) {
    const Tensor tensor(shape, dtype_of<T>);
    TESSERA_CHECK(tensor.elements() == static_cast<int64_t>(values.size()), "{} values for {}",
                  values.size(), shape.text());
    std::copy(values.begin(), values.end(), tensor.data<T>());
    return input(tensor);
  }
  Value input(const Tensor& tensor) {
    const Value value = builder_.input("given" + std::to_string(bound_.size()),
                                       {tensor.shape(), tensor.dtype(), {}});
    bound_.emplace_back(value, tensor);
    return value;
  }

  void run(const std::vector<Value>& outputs) {
    for (const Value output : outputs) builder_.output(output);
    frame_.emplace(program_, runtime_);
    for (const auto& [value, tensor] : bound_) frame_->bind(value, tensor);
    frame_->run();
  }

  template <typename T>
  std::vector<T> read(Value value) {
    const auto values = (*frame_)[value].values<T>();
    return {values.begin(), values.end()};
  }

 private:
  Runtime runtime_;
  Program program_;
  Builder builder_{program_};
  std::vector<std::pair<Value, Tensor>> bound_;
  std::optional<ProgramRun> frame_;
};

}  // namespace tessera::testing
