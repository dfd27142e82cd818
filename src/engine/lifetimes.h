#pragma once

#include <compare>
#include <vector>

#include "engine/action.h"
#include "engine/joins.h"

namespace tessera {

/// A moment in a frame (see engine/action.h): one step of one of the program's segments.
struct Moment {
  int segment = 0;  ///< index in the order of the segments
  int step = 0;     ///< index among the segment's nodes

  auto operator<=>(const Moment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A block of a frame's memory. It holds an input or a computed value, with its views, and later
/// the values that are computed in its place.
struct FrameBlock {
  int64_t bytes = 0;
  Moment first;                    ///< the first moment at which the block is in use
  Moment last;                     ///< the last one
  bool has_run_time_rows = false;  ///< true if the value has Rows
  int64_t expected_bytes = 0;      ///< the bytes of its Rows when the load is even
};

/// The segments in which a value is in memory, as indices in their order.
struct SegmentRange {
  int first = -1;  ///< the one that makes the value, or first uses an input; -1: none
  int last = -1;   ///< the last one that uses it
};

/// The times within a frame at which a program's values are in memory.
struct Lifetimes {
  /// Finds the lifetimes in a program whose segments run in this order. Throws InternalError if a
  /// node is in none of the segments, or in two, and as require_sound() does.
  Lifetimes(const Program& program, std::vector<Segment> order);

  std::vector<Segment> order;
  std::vector<std::vector<int>> nodes;  ///< by segment: its nodes, in the order in which they run
  std::vector<Joins> joins;             ///< by segment
  std::vector<FrameBlock> blocks;
  /// By value: the index of its block, which a view shares with its base. -1 for a value that is
  /// kept between actions, and for a computed value that no node makes.
  std::vector<int> block_of;
  std::vector<SegmentRange> ranges;  ///< by value; empty where there is no block
  /// By value: true if a node makes it and a later segment uses it. False for inputs and views.
  std::vector<bool> saved;
};

}  // namespace tessera
