#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/action.h"
#include "pipeline/schedule.h"
#include "pipeline/stage_list.h"
#include "program/program.h"

namespace tessera {

// Two micro-batches depend on each other only where they add to the same gradients. If they take
// turns, calls of one run beside the computing of the other: also calls whose results the next node
// needs at once.

/// A part of a pass of one of two micro-batches.
struct PairPart {
  bool is_of_second = false;
  StepRange steps;
};

/// By segment: the parts of the passes of two micro-batches, in the order in which they run. A
/// segment that is not here runs for one micro-batch after the other.
using PairParts = std::map<Segment, std::vector<PairPart>>;

/// Returns whether the forward pass of a micro-batch may run before the backward pass of the one
/// before it and leave the bits of all results: neither pass changes a kept value that the other
/// one uses. A tied head breaks this, because its gradient is added in the forward pass, and that
/// of the embedding in the backward pass.
bool may_pair(const Program& program);

/// Returns the parts of a pass of two micro-batches of one program. The first one runs to a node
/// that would have to wait for another lane, then the second one does, and so on. Nodes that use
/// the same kept values, of which one changes them, keep the order of the micro-batches, so the
/// bits of all results stay. Returns none if the micro-batches would not take turns.
std::optional<std::vector<PairPart>> pair_parts(
    const Program& program, Segment segment,
    const std::function<double(const Program& program, const Node& node)>& seconds);

/// Returns a schedule of one chunk in which two micro-batches in a row run their forward passes,
/// then their backward passes. A last one without a second stays alone.
PipelineSchedule in_pairs(PipelineSchedule schedule);

/// Lets the passes of a list of such a schedule run in these parts.
void take_turns(StageList& list, const PairParts& parts);

}  // namespace tessera
