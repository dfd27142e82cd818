#pragma once

#include <array>
#include <limits>
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

}  // namespace tessera
