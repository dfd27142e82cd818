#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/action.h"
#include "engine/joins.h"
#include "engine/late_waits.h"
#include "engine/lifetimes.h"
#include "engine/steps_at_work.h"
#include "program/target.h"
#include "tensor/tensor.h"

namespace tessera {

// plan_memory(), at the end, and the plan that it returns.

/// The kept values whose memory the caller owns, by name: weights that several plans share.
using GivenTensors = std::map<std::string, Tensor>;

/// The region, at the end of the arena, of values whose number of rows is known only at run time.
struct RunTimeRows {
  int64_t offset = 0;
  int64_t bound_bytes = 0;     ///< the reserved bytes
  int64_t expected_bytes = 0;  ///< the bytes that are touched when the load is even
};

/// A frame between two of its segments, or between two parts of one.
struct WaitingFrame {
  int program = 0;
  int frame = 0;
  Moment next;  ///< the first step that has not run

  auto operator<=>(const WaitingFrame&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A value that is in memory because of a hold: an output while it is held, an input from the
/// hold's beginning to the segment that first uses it.
struct HeldValue {
  int program = 0;
  int frame = 0;
  int value = 0;  ///< its id

  auto operator<=>(const HeldValue&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// What decides which memory is in use, without micro-batches: the segment and the frame that run,
/// the frames that wait meanwhile, whose values keep their memory, and the values that are held.
/// The beginning of a hold of inputs is a situation too, in which nothing runs.
struct Situation {
  int program = -1;  ///< -1, as the next two: nothing runs
  int frame = -1;
  int segment_index = -1;             ///< in ProgramMemory::order
  int begin_step = 0;                 ///< the first of the segment's steps that run
  int end_step = 0;                   ///< the step after the last one
  std::vector<WaitingFrame> waiting;  ///< ascending
  std::vector<HeldValue> held;        ///< ascending

  auto operator<=>(const Situation&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The memory of one program's values and workspaces, as offsets in bytes into the arena.
struct ProgramMemory {
  /// By frame, then by value; -1 for a value without memory here: never made, or given.
  std::vector<std::vector<int64_t>> values;
  /// By frame, then by node; -1 for a node without a workspace.
  std::vector<std::vector<int64_t>> workspaces;
  std::vector<int64_t> workspace_bytes;  ///< by node
  std::map<int, int> frames;             ///< by micro-batch: the index of its frame
  std::vector<Segment> order;            ///< the segments, in the order in which a frame runs them
  std::vector<std::vector<int>> nodes;   ///< by index in `order`: the nodes that run
  std::vector<Joins> joins;              ///< by index in `order`
  std::vector<std::vector<Value>> inputs;  ///< by index in `order`: the caller writes them first
  std::vector<SegmentRange> ranges;        ///< by value: the segments, as indices in `order`
  /// By value: true if a node makes it and a later segment uses it. False for inputs and views.
  std::vector<bool> saved;
  /// By node: the most bytes in use while it runs, over all frames, kept values included.
  std::vector<int64_t> live_bytes;
  int64_t saved_bytes = 0;  ///< the most bytes that a frame keeps from one segment to a later one
};

/// The offsets, in one arena, of the values and workspaces of every frame and of the kept values.
struct MemoryPlan {
  int64_t arena_bytes = 0;  ///< the reserved bytes, with the holes between blocks
  int64_t live_bytes = 0;   ///< the most bytes in use at once, without holes
  int64_t kept_bytes = 0;   ///< of weights, main gradients and states
  RunTimeRows rows;
  std::vector<ProgramMemory> programs;
  /// The situations that occur: the plan is valid in these alone. Each has the outlasting steps
  /// that may be at work when it begins. The compute lane awaits others first.
  std::map<Situation, std::set<StepAtWork>> situations;
  std::vector<OutlastingStep> outlasting;  ///< the outlasting steps of all programs
  LateWaits late_waits;                    ///< the waits for them
  /// The program of the node that runs when most bytes are in use; -1 if all bytes are of kept
  /// values, or if no node runs then, but a hold begins.
  int peak_program = -1;
  int peak_node = -1;  ///< the node's index in the program; -1 as above
};

/// Plans the memory of programs that run through `list`, in this order, again and again. A pure
/// function: it does not depend on this machine.
///
/// Kept values (weights, main gradients, states) with the same kind and name are one value for all
/// programs. A micro-batch has a frame of a program from its first entry in that program to its
/// last. Frames that are not in flight at the same time share memory.
///
/// Within a frame an input lives from the beginning of the segment that first uses it to its last
/// use; the caller writes it right before that action. A computed value lives from its node to its
/// last use. An output of the program lives at least to the end of its segment, so that the caller
/// can read it before the next action and before the next hold of inputs. Held values live longer:
/// inputs from the beginning of their hold, outputs to its end (see Hold).
///
/// The operands and the workspace of a node of another lane than `compute` live until the compute
/// lane has awaited the node, in whatever action that is (see find_joins() and find_late_waits()).
/// So the memory does not depend on how long messages take. The nodes of such a lane share one
/// workspace, because they run one after the other.
///
/// Throws InternalError if the actions of a program do not cover its nodes, run them twice, or
/// differ between micro-batches, if two programs declare a kept value with different specs, and for
/// holds that break the rules of Hold or do not end.
MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const ListEntry> list,
                       const Target& target, const GivenTensors& given = {});
/// The same for a list without holds.
MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const Action> actions,
                       const Target& target, const GivenTensors& given = {});

/// Returns the parts of such a plan that say how lanes run the list, without memory: the nodes, the
/// joins, the frames, and the waits for outlasting steps.
MemoryPlan plan_lanes(std::span<const Program* const> programs, std::span<const ListEntry> list,
                      const Target& target);

/// Returns MemoryPlan::live_bytes of such a plan. It takes less time, because no value gets an
/// offset.
int64_t plan_live_bytes(std::span<const Program* const> programs, std::span<const ListEntry> list,
                        const Target& target);

}  // namespace tessera
