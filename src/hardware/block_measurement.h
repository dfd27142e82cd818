#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/count_flops.h"
#include "hardware/repeats.h"
#include "program/program.h"

namespace tessera {

/// A part of a model as a program of its own, with a backward pass.
struct BlockProgram {
  Program program;
  /// What the floating inputs and parameters are filled with: normal numbers of this deviation, by
  /// the value's id; 1 where none is given.
  std::map<int, double> deviations;
  /// What the i32 inputs are filled with, by the value's id.
  std::map<int, std::vector<int32_t>> integers;
  FlopCount flops;  ///< of the matrix products that the block demands
};

/// How long a block took.
struct BlockMeasurement {
  std::vector<double> forward_seconds;           ///< of each run, what training's forward pass does
  std::vector<double> forward_backward_seconds;  ///< of the same runs with their backward passes
  int64_t pool_bytes = 0;         ///< the peak of weights, their gradients, inputs and activations
  int64_t peak_memory_bytes = 0;  ///< the process's when the runs had ended
  std::vector<std::vector<int32_t>> integer_outputs;  ///< the program's i32 outputs, last run
};

/// Runs the block forward and backward on its own memory. Weight gradients are added into main
/// gradients, as in training.
BlockMeasurement measure_block(const BlockProgram& block, int threads, const Repeats& repeats);

}  // namespace tessera
