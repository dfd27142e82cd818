#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/count_flops.h"
#include "engine/executor.h"
#include "hardware/repeats.h"
#include "program/builder.h"

namespace tessera {

/// A part of a model as a program of its own, with a backward pass. What it takes are states, so
/// that it can run again and again.
struct BlockProgram {
  Program program;
  /// What the floating states and parameters are filled with: normal numbers of this deviation, by
  /// the value's id; 1 where none is given.
  std::map<int, double> deviations;
  /// What the i32 states are filled with, by the value's id.
  std::map<int, std::vector<int32_t>> integers;
  FlopCount flops;         ///< of the matrix products that the block demands
  int64_t parameters = 0;  ///< elements of the block's weights
};

/// Marks the outputs, appends the backward pass from random gradients of them, and counts.
void complete_block(BlockProgram& block, Builder& builder, std::span<const Value> outputs);

/// The memory of weights, their gradients, states and activations that running the block takes on
/// so many threads; known without running it.
int64_t planned_bytes(const BlockProgram& block, int threads);

/// Throws Error when that is more than the machine has; `advice` says what to lower.
void require_memory(const BlockProgram& block, int threads, const std::string& advice);

/// A block on its own memory, ready to run. Refers to the block, which must outlive it.
class BlockRunner {
 public:
  BlockRunner(const BlockProgram& block, int threads);
  /// What training's forward pass does.
  void forward() { executor_.run({.segment = Segment::forward}); }
  /// The backward pass of the last forward pass; weight gradients are added into main gradients, as
  /// in training.
  void backward() { executor_.run({.segment = Segment::backward}); }
  /// Weights, their gradients, states and activations.
  int64_t arena_bytes() const { return executor_.plan().arena_bytes; }
  /// The tensor of a value: right while the last pass has it in memory, as it has outputs.
  const Tensor& operator[](Value value) const { return executor_.tensor(value); }

 private:
  Runtime runtime_;
  Executor executor_;
};

/// How long a block took.
struct BlockMeasurement {
  std::vector<double> forward_seconds;           ///< of each run, what training's forward pass does
  std::vector<double> forward_backward_seconds;  ///< of the same runs with their backward passes
  int64_t arena_bytes = 0;        ///< weights, their gradients, states and activations
  int64_t peak_memory_bytes = 0;  ///< the process's when the runs had ended
  std::vector<std::vector<int32_t>> integer_outputs;  ///< the program's i32 outputs, last run
};

/// Runs the block forward and backward, each thread bound to a core (see BoundTeam).
BlockMeasurement measure_block(const BlockProgram& block, int threads, const Repeats& repeats);

}  // namespace tessera
