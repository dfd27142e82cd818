#pragma once

#include <array>
#include <span>
#include <vector>

#include "program/operation.h"
#include "program/program.h"

namespace tessera {

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

}  // namespace tessera
