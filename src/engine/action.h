#pragma once

#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/words.h"
#include "program/program.h"

namespace tessera {

/// A part of a program that runs without interruption.
enum class Segment {
  whole,             ///< every node
  forward,           ///< the forward pass
  backward,          ///< the backward pass, with recomputation
  input_gradients,   ///< the nodes of the backward pass that the gradients of a chunk's boundary
                     ///< depend on, which are outputs of the program
  weight_gradients,  ///< the rest of the backward pass (zero-bubble schedules run it later)
};
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<Segment>{
    "whole", "forward", "backward", "input_gradients", "weight_gradients"};

/// A range of a segment's steps. A step is a node's index in its segment.
struct StepRange {
  int begin = 0;
  int end = std::numeric_limits<int>::max();  ///< the step after the last one, or any number above

  bool operator==(const StepRange&) const = default;
};

/// One piece of a rank's work: a segment of one of its programs, or a part of it, for one
/// micro-batch. A *frame* is the memory of one micro-batch in one program, from its first action or
/// hold there to its last.
struct Action {
  Segment segment = Segment::whole;
  int program = 0;  ///< index in the executor's list of programs
  int micro_batch = 0;
  StepRange steps = {};  ///< the parts of a segment run in order, with other actions between them

  bool operator==(const Action&) const = default;
};

/// Keeps values of a frame in memory between two places of a rank's list: the one where it begins
/// and the one where it ends. Meanwhile something that the executor does not know, such as a
/// message, reads or writes them. It may begin and end a frame like an action. A value is
///  - an input of the program, which gets its contents during the hold. The hold ends before the
///    segment that first uses the input, and the contents stay in memory until then.
///  - an output of the program. The hold begins after the segment that makes it, before the list's
///    next action and before the next hold of inputs, which may take its memory; or later, if a
///    later segment of the frame uses the output. It may end after the frame's last segment.
struct Hold {
  int program = 0;  ///< index in the executor's list of programs
  int micro_batch = 0;
  std::vector<Value> values;
  bool begins = true;  ///< false where the hold of these values ends

  bool operator==(const Hold&) const = default;
};

/// One entry of a rank's list.
using ListEntry = std::variant<Action, Hold>;

/// Returns the indices of a segment's nodes, in the order in which they run. Views are left out,
/// because nothing runs for them.
std::vector<int> segment_nodes(const Program& program, Segment segment);

/// By lane: a step of that lane, as the index of a node in its segment; -1 for none.
using LaneSteps = std::array<int, kLanes>;
inline constexpr LaneSteps kNoSteps = [] {
  LaneSteps none{};
  none.fill(-1);
  return none;
}();

/// The steps of a segment at which lanes wait for each other (see Lane). Both lists are by step.
struct Joins {
  /// The last steps of other lanes than `compute` that must be done before the step begins. A step
  /// of which that is known, since an earlier step of its lane or another awaited step began after
  /// it, is not named.
  std::vector<LaneSteps> awaited;
  /// The last step during which the operands of the step may be in use. On the compute lane it is
  /// the step itself. The work of another lane goes on until a step of the compute lane is known to
  /// begin after it. It is the segment's last step if no step of the segment is.
  std::vector<int> busy_until;
  /// The last steps of other lanes that the compute lane awaits at the end of the segment: those
  /// that use inputs and outputs of the program, which the caller may touch from then on.
  LaneSteps at_end = kNoSteps;
  /// The steps that may be at work when the segment has ended, ascending.
  std::vector<int> outlasting;

  /// Returns whether a step of another lane than `compute` may be at work when an action has ended
  /// that runs the segment's steps up to `end`.
  bool outlasts(int step, int end) const;
};

/// Returns the joins of nodes that run in this order. A node waits for a node of another lane if
/// both use the same memory and one of them writes it. A node of another lane than `compute` begins
/// after all earlier nodes of the compute lane.
Joins find_joins(const Program& program, std::span<const int> nodes);

inline constexpr int kNeverKnown = std::numeric_limits<int>::max();

/// A step that may be at work when its action has ended.
struct OutlastingStep {
  int program = 0;
  int segment_index = 0;  ///< in ProgramMemory::order
  int step = 0;
  /// The first step of its segment that knows it to be done, or the number of its steps if the end
  /// of the segment awaits it; kNeverKnown if neither does.
  int known_at = 0;
  Lane lane = Lane::reductions;
};

/// A wait of a step for an outlasting step of an earlier action, if that is still at work.
struct LateWait {
  int outlasting = 0;  ///< index in the list of outlasting steps
  /// Whether only steps of the same frame use the same memory. Otherwise those of all frames do.
  bool same_frame = false;
};

/// By program, segment and step: the waits for outlasting steps.
using LateWaits = std::vector<std::vector<std::vector<std::vector<LateWait>>>>;

/// Returns the waits for the steps `outlasting` of actions that come before, in whatever order
/// actions run. `nodes` are those of each program, by segment.
LateWaits find_late_waits(std::span<const Program* const> programs,
                          std::span<const std::vector<std::vector<int>>> nodes,
                          std::span<const OutlastingStep> outlasting);

}  // namespace tessera
