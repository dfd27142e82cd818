#pragma once

#include <tuple>
#include <vector>

#include "engine/action.h"
#include "engine/joins.h"

namespace tessera {

/// A moment in a frame (the memory of one micro-batch in one program): one step of one of the
/// program's segments.
struct Moment {
  int segment = 0;  ///< index in the order of the segments
  int step = 0;     ///< index among the segment's nodes

  bool operator==(const Moment&) const = default;
  bool operator<(const Moment& other) const {
    return std::tie(segment, step) < std::tie(other.segment, other.step);
  }
};

/// Memory that one or more values of a frame use one after the other: a computed value or an input,
/// with its views, and the values that reuse its memory.
struct FrameBlock {
  int64_t bytes = 0;
  Moment begin;
  Moment last;
  bool rows = false;           ///< true for rows whose number is known only at run time (see Rows)
  int64_t expected_bytes = 0;  ///< the bytes of such rows when the load is even
};

/// The times within a frame at which a program's values are in memory.
struct Lifetimes {
  /// Finds the lifetimes in a program whose segments run in this order. Throws InternalError if the
  /// segments leave out a node or hold one twice.
  Lifetimes(const Program& program, std::vector<Segment> order);

  std::vector<Segment> order;
  std::vector<std::vector<int>> nodes;  ///< by segment: its nodes, in the order in which they run
  std::vector<Joins> joins;             ///< by segment
  std::vector<FrameBlock> blocks;
  /// By value: its block, or -1 for a kept value, for a view of one, and for a computed value that
  /// no node makes. A view has its base's block.
  std::vector<int> block_of;
  /// By value: true if it is used in a later segment than the one that makes it.
  std::vector<bool> saved;
};

}  // namespace tessera
