#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/arena_offsets.h"

namespace tessera {

/// A set of taken offsets: ranges that do not touch one another, ascending.
class TakenOffsets {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };

 public:
  /// A search for a free offset, from low ones to high ones. It is valid until the set changes.
  class Search {
   public:
    explicit Search(std::span<const Range> ranges)
        : next_(ranges.data()),
          end_(ranges.data() + ranges.size()),
          limit_(ranges.empty() ? kNoLimit : ranges.front().begin) {}
    /// Returns the lowest offset, `offset` or more, from which `bytes` bytes are free. `offset` is
    /// not less than the result of the call before, and `bytes` is the same.
    int64_t lowest_free(int64_t offset, int64_t bytes);

   private:
    static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

    const Range* next_;  // the first one that may be in the way
    const Range* end_;
    int64_t limit_;  // where it begins
  };

  bool empty() const { return ranges_.empty(); }
  void clear() { ranges_.clear(); }
  void add(int64_t begin, int64_t end);
  Search search() const { return Search(ranges_); }

 private:
  std::vector<Range> ranges_;
};

/// The blocks of an arena that have an offset already, for finding the offset of the next block.
/// The blocks are in a segment tree over the timeline. Each node of the tree stands for some steps
/// and holds the offsets that are taken during them. A search visits few nodes instead of every
/// block: large models have hundreds of thousands of blocks.
class PlacedBlocks {
 public:
  /// All blocks must live within [0, steps).
  explicit PlacedBlocks(int steps);

  void clear();
  void add(const MemoryBlock& block, int64_t offset);
  /// Returns the lowest offset, `base` or more, at which the block overlaps no added block that is
  /// in use at the same time.
  int64_t lowest_fit(const MemoryBlock& block, int64_t base);

 private:
  struct TreeNode {
    // Blocks that live in all steps of the parent are in the parent alone.
    TakenOffsets throughout;  ///< of blocks that live in all of its steps
    TakenOffsets sometimes;   ///< of blocks that live in any of its steps
  };
  /// The index of a tree node, and its steps.
  struct NodeSteps {
    size_t node = 1;
    int begin = 0;
    int end = 0;
  };

  void add(const NodeSteps& steps, const Interval& live, int64_t begin, int64_t end);
  /// Collects in taken_ the offsets that are taken during an interval.
  void find_taken(const NodeSteps& steps, const Interval& live);
  /// Calls visit(half) for the halves of a node's steps that an interval overlaps.
  template <typename Visitor>
  static void visit_halves(const NodeSteps& steps, const Interval& live, const Visitor& visit);

  NodeSteps root_;
  std::vector<TreeNode> nodes_;              // the halves of node i are 2 i and 2 i + 1
  std::vector<TakenOffsets::Search> taken_;  // the offsets taken while the new block is in use
};

}  // namespace tessera
