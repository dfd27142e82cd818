#pragma once

#include <array>
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
  input_gradients,   ///< the part of the backward pass that its outputs need, which are the
                     ///< gradients of a chunk's boundary
  weight_gradients,  ///< the rest of the backward pass (zero-bubble schedules run it later)
};
template <>
inline constexpr std::array<std::string_view, 5> kWords<Segment>{
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

}  // namespace tessera
