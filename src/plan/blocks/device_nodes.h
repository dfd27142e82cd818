#pragma once

#include <memory>
#include <vector>

#include "engine/executor.h"

namespace tessera {

/// Runs the nodes of an executor's programs on a stream of its own with events of the device around
/// them, to time them. They compute what Executor::run() computes, after what the executor was
/// given before.
class DeviceNodes {
 public:
  /// Refers to both. The runtime must have an accelerator.
  DeviceNodes(const Executor& executor, Runtime& runtime);

  /// Runs a segment of a program for micro-batch 0 and returns the seconds from the beginning of
  /// its first node to the end of its last.
  double run(Segment segment, int program = 0);
  /// The nodes of the last run, and the seconds that each took.
  const std::vector<int>& nodes() const { return nodes_; }
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  void run_node(const Program& program, int program_number, int index);

  const Executor& executor_;
  Runtime& runtime_;
  std::shared_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Event>> events_;  // the first before all nodes, one after each
  std::vector<int> nodes_;
  std::vector<double> seconds_;
};

}  // namespace tessera
