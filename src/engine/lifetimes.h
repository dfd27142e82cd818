#pragma once

#include <tuple>
#include <vector>

#include "engine/action.h"

namespace tessera {

/// A moment of a frame: a step of one of its program's segments.
struct Moment {
  int segment = 0;  ///< position in the order of the segments
  int step = 0;     ///< position among the segment's nodes

  bool operator==(const Moment&) const = default;
  bool operator<(const Moment& other) const {
    return std::tie(segment, step) < std::tie(other.segment, other.step);
  }
};

/// Memory that one or more values of a frame have one after the other: a computed value or an
/// input, with its views, and the values that take its memory over.
struct FrameBlock {
  int64_t bytes = 0;
  Moment begin;
  Moment last;
  bool rows = false;           ///< brought at run time (see Rows)
  int64_t expected_bytes = 0;  ///< of rows
};

/// When the memory of a program's values comes and goes within a frame.
struct Lifetimes {
  /// Of a program whose segments run in this order. Throws InternalError when they leave out nodes
  /// or hold one twice.
  Lifetimes(const Program& program, std::vector<Segment> order);

  std::vector<Segment> order;
  std::vector<std::vector<int>> nodes;  ///< by segment: its nodes, as they run
  std::vector<FrameBlock> blocks;
  /// By value: its block, or -1 for a kept value, for a view of one, and for a value that no node
  /// uses or makes. Views have their base's.
  std::vector<int> block_of;
  /// By value: whether a segment after the one that makes it uses it.
  std::vector<bool> saved;
};

}  // namespace tessera
