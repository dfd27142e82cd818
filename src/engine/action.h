#pragma once

#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera {

/// A part of a program that runs in one go.
enum class Segment {
  whole,             ///< every node
  forward,           ///< the forward pass
  backward,          ///< the backward pass, repetitions included
  input_gradients,   ///< of the backward pass what its outputs need: a chunk's boundary gradients
  weight_gradients,  ///< the rest of the backward pass (zero-bubble schedules run it later)
};
/// "whole", "forward", ...
std::string_view segment_name(Segment segment);

/// One thing that a rank does: a segment of one of its programs, for one micro-batch.
struct Action {
  Segment segment = Segment::whole;
  int program = 0;      ///< which of the rank's programs: a chunk, or what stands beside the chunks
  int micro_batch = 0;  ///< each has a frame of its own from its first action to its last

  bool operator==(const Action&) const = default;
};

/// The nodes of a segment, by position, in the order in which they run. Views are left out: nothing
/// runs for them.
std::vector<int> segment_nodes(const Program& program, Segment segment);

}  // namespace tessera
