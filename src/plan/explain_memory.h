#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/step_plan.h"

namespace tessera {

/// The bytes that a rank reserves, by what they are for. Each value counts with its alignment. The
/// sum of all is MemoryPlan::arena_bytes.
struct RankMemory {
  int64_t weights = 0;        ///< those that programs compute with, and f32 ones that are masters
  int64_t second_copies = 0;  ///< of weights (ShardAxes::secondary)
  int64_t gradients = 0;      ///< main gradients, and rounding errors that are added to later ones
  int64_t optimizer = 0;      ///< masters of rounded weights, and moments
  /// The part of the arena in which values wait for a later segment of their micro-batch, mostly
  /// from the forward to the backward pass.
  int64_t activations = 0;
  /// All else: values within a segment, workspaces, inputs, sums of a step, holes.
  int64_t buffers = 0;

  int64_t total() const {
    return weights + second_copies + gradients + optimizer + activations + buffers;
  }
};

/// Returns what the memory of a plan is for.
RankMemory rank_memory(const StepPlan& plan);

/// Returns a table of rank_memory(), with the sum.
std::string memory_table(const StepPlan& plan);

/// Returns the same as an object.
nlohmann::ordered_json memory_json(const StepPlan& plan);

}  // namespace tessera
