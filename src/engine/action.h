#pragma once

#include <array>
#include <span>
#include <string_view>
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

/// One piece of a rank's work: a segment of one of its programs, for one micro-batch. A *frame* is
/// the memory of one micro-batch in one program, from its first action there to its last.
struct Action {
  Segment segment = Segment::whole;
  int program = 0;  ///< index in the executor's list of programs
  int micro_batch = 0;

  bool operator==(const Action&) const = default;
};

/// Returns the indices of a segment's nodes, in the order in which they run. Views are left out,
/// because nothing runs for them.
std::vector<int> segment_nodes(const Program& program, Segment segment);

/// The steps of a segment at which the compute lane waits for the network lane
/// (see Lane). A step is the index of a node in the segment, and both lists are by step.
struct Joins {
  /// The last step of the network lane that must be done before the step begins; -1 for none.
  std::vector<int> awaited;
  /// The last step during which the operands of the step may be in use. On the compute lane it is
  /// the step itself. The work of the network lane goes on until a later step waits for it.
  std::vector<int> busy_until;
};

/// Returns the joins of nodes that run in this order. A node of the compute lane waits for a node
/// of the network lane if both use the same memory and one of them writes it. A node of the network
/// lane begins after all earlier nodes of the compute lane. The end of the segment waits for
/// everything.
Joins find_joins(const Program& program, std::span<const int> nodes);

}  // namespace tessera
