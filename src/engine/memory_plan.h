#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/action.h"
#include "program/target.h"
#include "tensor/tensor.h"

namespace tessera {

/// Kept values that someone else has the memory of, by name: weights that several plans share.
using GivenTensors = std::map<std::string, Tensor>;

/// Rows that are brought at run time. Their number is known only then: `bound_bytes` are reserved,
/// and `expected_bytes` of them touched where the load is even.
struct RunTimeRows {
  int64_t offset = 0;  ///< of their region in the arena, behind all else
  int64_t bound_bytes = 0;
  int64_t expected_bytes = 0;
};

/// Where the values of one program lie, in bytes from the arena's beginning.
struct ProgramPlaces {
  /// By frame, then by value; -1 for a value without memory here: never used, or given.
  std::vector<std::vector<int64_t>> values;
  /// By frame, then by node; -1 for a node without a workspace.
  std::vector<std::vector<int64_t>> workspaces;
  std::vector<int64_t> workspace_bytes;    ///< by node
  std::map<int, int> frames;               ///< by micro-batch: which frame it has
  std::vector<Segment> order;              ///< in which a frame runs its segments
  std::vector<std::vector<int>> nodes;     ///< by segment of the order: the nodes that run
  std::vector<std::vector<Value>> inputs;  ///< by segment: what the caller writes right before it
  /// By value: whether a segment after the one that makes it uses it.
  std::vector<bool> saved;
  /// By node: the most bytes in use while it runs, all frames and kept values included.
  std::vector<int64_t> live_bytes;
  int64_t saved_bytes = 0;  ///< what a frame leaves in use from segment to segment
};

/// The place of every value of every frame, of the workspaces and of what is kept between the
/// actions, in one arena.
struct MemoryPlan {
  int64_t arena_bytes = 0;  ///< what is reserved: holes between blocks included
  int64_t live_bytes = 0;   ///< the most in use at once, without holes
  int64_t kept_bytes = 0;   ///< of weights, main gradients and states
  RunTimeRows rows;
  std::vector<ProgramPlaces> programs;
  int peak_program = -1;  ///< where the most is in use
  int peak_node = -1;
};

/// Plans the memory of programs that run by `actions`, in this order, again and again. A pure
/// function: nothing is asked of this machine.
///
/// Kept values (weights, main gradients, states) are one over all programs by kind and name. A
/// micro-batch has a frame of a program from its first action of it to its last; frames that are
/// not in flight at once share memory.
///
/// Within a frame an input lives from the beginning of the segment that first uses it to its last
/// use: the caller writes it right before that action. A computed value lives from its node to its
/// last use, an output to the end of its segment: the caller reads it before the next action.
///
/// Throws InternalError when the actions of a program do not cover its nodes, or run them twice.
MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const Action> actions,
                       const Target& target, const GivenTensors& given = {});

}  // namespace tessera
