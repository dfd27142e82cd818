#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/action.h"
#include "pipeline/schedule.h"

namespace tessera {

/// The program of one chunk on its rank, and the values in it that cross to the chunks beside it.
struct ChunkProgram {
  int program = 0;                     ///< index in the executor's list of programs
  std::vector<Value> activations_in;   ///< inputs of the forward pass
  std::vector<Value> activations_out;  ///< its outputs
  std::vector<Value> gradients_in;     ///< inputs of the backward pass
  std::vector<Value> gradients_out;    ///< its outputs
};

// The entries of a stage's list. A Hold names the boundary's values in the frame that sends or gets
// them; it begins where a message is posted and ends where it is awaited, and so does the memory.

/// An action, and the segment that runs for it.
struct StageAction {
  ChunkAction action;
  Action run;
  /// What runs in its place: the parts of the segment, with steps of the update between them, or
  /// parts of a pass that takes turns with it. Empty if the segment runs as a whole.
  std::vector<Action> parts = {};

  std::span<const Action> runs() const { return parts.empty() ? std::span(&run, 1) : parts; }
};
/// A post or a wait.
struct StageMessage {
  MessageCall call = MessageCall::post_send;
  BoundaryMessage message;
  int peer = 0;  ///< the stage at the other end
  Hold hold;
};
/// A boundary between two chunks of this stage, whose sender has computed it.
struct KeptBoundary {
  Hold hold;
};
/// The copy of such a boundary to the inputs of the other chunk, right before the action that needs
/// it.
struct PassedBoundary {
  Hold from;  ///< ends
  Hold to;    ///< begins; its end follows at once
};
/// Returns the end of a hold.
inline Hold end_of(Hold hold) {
  hold.begins = false;
  return hold;
}
using StageEntry = std::variant<StageAction, StageMessage, KeptBoundary, PassedBoundary>;

/// What one stage does in a step, or in a forward pass alone: a rank's list of a schedule, over the
/// programs of its chunks. Micro-batches whose frames are not in flight at the same time have the
/// same number in Action and Hold, so that plans do not depend on how many micro-batches there are.
struct StageList {
  int micro_batches = 0;
  std::vector<StageEntry> entries;
  int update_steps = 0;  ///< the steps of the update, from the first on, that the list has begun

  /// Returns the entries as plan_memory() takes them.
  std::vector<ListEntry> for_plan() const;
};

/// Returns the list of a stage of a schedule that validate() accepts and in_halves() leaves as it
/// is. `chunks` are the programs of
/// its chunks, in the model's order.
StageList stage_list(const PipelineSchedule& schedule, int stage,
                     std::span<const ChunkProgram> chunks);

/// Returns the schedule of a forward pass alone: each stage runs one micro-batch through each of
/// its chunks, in the model's order.
PipelineSchedule forward_schedule(const ChunkPlacement& placement);

}  // namespace tessera
