#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/action.h"
#include "pipeline/schedule.h"
#include "pipeline/stage_list.h"
#include "program/program.h"

namespace tessera {

// Two micro-batches depend on each other only where they use the same kept values, such as
// gradients. If they take turns, calls of one run beside the computing of the other. So also calls
// hide whose results the next node needs at once. MegaScale-MoE cuts operations into parts to hide
// these (section 4.2).

/// A part of one of two passes that take turns.
struct TurnPart {
  bool is_of_second = false;
  StepRange steps;
};

/// A pass of one micro-batch and a pass of the next one, which take turns.
struct PassesInTurns {
  Segment first = Segment::forward;
  Segment second = Segment::forward;
  std::vector<TurnPart> parts;  ///< in the order in which they run
};

/// Which passes of a step with one chunk take turns; none by default.
struct MicroBatchTurns {
  /// If true, the forward passes of two micro-batches take turns, then their backward passes; a
  /// third one begins when both are done. If false, the backward pass of a micro-batch takes turns
  /// with the forward pass of the next one, which takes less memory: one frees what the other
  /// needs.
  bool in_pairs = false;
  std::vector<PassesInTurns> passes;
  std::string none_because = {};  ///< why no passes take turns, for people

  bool empty() const { return passes.empty(); }
};

using SecondsOfNode = std::function<double(const Program& program, const Node& node)>;

/// Returns the passes of a program that take turns, in pairs or not: one runs to a node that would
/// have to wait for another lane, then the other one does, and so on. Nodes that use the same kept
/// values, of which one changes them, keep the order of the micro-batches, so the bits of all
/// results stay. Returns none where no pass could go on beside the other, and in pairs also if the
/// forward pass changes a kept value that the backward pass uses: a tied head's gradient, for one.
MicroBatchTurns find_turns(const Program& program, bool in_pairs, const SecondsOfNode& seconds);

/// Returns a schedule of one chunk in which two micro-batches in a row run their forward passes,
/// then their backward passes. A last one without a second stays alone.
PipelineSchedule in_pairs(PipelineSchedule schedule);

/// Lets the passes of a list take turns. It is that of a schedule by in_pairs() if turns are in
/// pairs.
void take_turns(StageList& list, const MicroBatchTurns& turns);

}  // namespace tessera
