#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/count_flops.h"
#include "engine/executor.h"
#include "plan/blocks/repeats.h"
#include "program/builder.h"

namespace tessera {

/// A part of a model as a program of its own, with a backward pass. States or parameters take the
/// place of inputs, so that their values stay in memory from run to run.
struct BlockProgram {
  Program program;
  /// By the value's id: the standard deviation of the normal numbers that fill a floating-point
  /// state or parameter. 1 if none is given.
  std::map<int, double> deviations;
  /// By the value's id: the contents of an i32 state.
  std::map<int, std::vector<int32_t>> integers;
  FlopCount flops;         ///< of the matrix products that the block demands
  int64_t parameters = 0;  ///< elements of the block's weights
};

/// Marks the outputs, appends a backward pass from random gradients of them, and counts FLOPs.
void complete_block(BlockProgram& block, Builder& builder, std::span<const Value> outputs);

/// Returns the target of a measurement on a device of this machine, with `threads` threads.
Target block_target(int threads, Device device = Device::cpu);

/// Returns the bytes that running the block takes on a target: weights, their gradients, states and
/// activations. Does not run the block.
int64_t planned_bytes(const BlockProgram& block, const Target& target);

/// Throws Error when the block needs more memory than the runtime's machine or accelerator has.
/// `advice` says what to lower.
void require_memory(const BlockProgram& block, const Runtime& runtime, const std::string& advice);

/// A block with memory of its own, filled and ready to run. Keeps references to the block and the
/// runtime, which must outlive the runner.
class BlockRunner {
 public:
  BlockRunner(const BlockProgram& block, Runtime& runtime);
  /// Runs the forward pass as training does.
  void forward() { executor_.run({.segment = Segment::forward}); }
  /// Runs the backward pass of the last forward pass. Weight gradients are added into main
  /// gradients, as in training.
  void backward() { executor_.run({.segment = Segment::backward}); }
  /// Waits until both passes are done. On the processor they are done already.
  void wait() { executor_.synchronize(); }
  /// Returns the bytes of weights, their gradients, states and activations.
  int64_t arena_bytes() const { return executor_.plan().arena_bytes; }
  /// Returns the tensor of a value, valid while the last pass keeps the value, as it keeps outputs.
  const Tensor& operator[](Value value) const { return executor_.tensor(value); }

 private:
  Executor executor_;
};

/// The times of a block's runs, and the memory that they used.
struct BlockMeasurement {
  std::vector<double> forward_seconds;           ///< of each run's forward pass, as in training
  std::vector<double> forward_backward_seconds;  ///< of both passes in the same runs
  int64_t arena_bytes = 0;        ///< weights, their gradients, states and activations
  int64_t peak_memory_bytes = 0;  ///< of the process, read after the runs
  std::vector<std::vector<int32_t>> integer_outputs;  ///< the program's i32 outputs in the last run
};

/// Runs the block forward and backward, and returns the times. The threads are bound to cores (see
/// BoundTeam). On a device each pass is one graph, and its time includes the host's wait for it.
BlockMeasurement measure_block(const BlockProgram& block, Runtime& runtime, const Repeats& repeats);

}  // namespace tessera
