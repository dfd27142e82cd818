#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <omp.h>

#include "engine/executor.h"
#include "hardware/random_fill.h"
#include "ops/host_target.h"

namespace tessera {

/// A program of operations on states, which are zeros at first, on all cores.
class UpdateRun {
 public:
  explicit UpdateRun(const std::function<void(Builder&)>& write)
      : runtime_(host_target(omp_get_max_threads())) {
    Builder builder(program_);
    write(builder);
    executor_.emplace(std::vector<const Program*>{&program_}, std::span(&kRun, 1), runtime_);
  }

  void set(std::string_view name, double value) { *executor_->tensor(name).data<double>() = value; }
  /// Fills a state with random numbers of this deviation.
  void fill(std::string_view name, double deviation) {
    fill_normal(executor_->tensor(name), name, deviation, omp_get_max_threads());
  }
  /// The same of all states.
  void fill_all(double deviation) {
    for (const ValueInfo& value : program_.values()) {
      if (value.kind == ValueKind::state) fill(value.name, deviation);
    }
  }
  void run() { executor_->run(kRun); }

 private:
  static constexpr Action kRun{.segment = Segment::whole};

  Runtime runtime_;
  Program program_;
  std::optional<Executor> executor_;
};

}  // namespace tessera
