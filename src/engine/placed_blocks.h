#pragma once

#include <cstdint>
#include <vector>

#include "engine/arena_places.h"

namespace tessera {

/// Offsets that are taken: ranges that do not touch one another, ascending.
class TakenOffsets {
 public:
  bool empty() const { return ranges_.empty(); }
  void clear() { ranges_.clear(); }
  void add(int64_t begin, int64_t end);
  /// Returns the lowest offset, of `offset` at least, from which `bytes` bytes are free.
  int64_t lowest_free(int64_t offset, int64_t bytes) const;

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Range> ranges_;
};

/// The blocks of an arena that have a place, for finding the next one's. It is a segment tree over
/// the timeline. Each of its nodes stands for some steps, and knows which offsets are taken then.
/// So the search does not look at every block, of which large models have hundreds of thousands.
class PlacedBlocks {
 public:
  /// All blocks live within [0, steps).
  explicit PlacedBlocks(int steps);

  /// Forgets all blocks.
  void clear();
  void add(const MemoryBlock& block, int64_t offset);
  /// Returns the lowest offset, of `base` at least, at which a block overlaps none that is in use
  /// at the same time.
  int64_t lowest_fit(const MemoryBlock& block, int64_t base);

 private:
  struct Node {
    // Neither counts blocks that live in all of its parent's steps: these are the parent's.
    TakenOffsets throughout;  ///< by blocks that live in all of its steps
    TakenOffsets sometimes;   ///< by blocks that live in any of its steps
  };
  /// A node and its steps.
  struct Place {
    size_t node = 1;
    int begin = 0;
    int end = 0;
  };

  void add(const Place& place, const Interval& live, int64_t begin, int64_t end);
  void find_taken(const Place& place, const Interval& live);
  /// Calls visit(child) for the halves of a place that an interval meets.
  template <typename Visitor>
  static void visit_halves(const Place& place, const Interval& live, const Visitor& visit);

  Place root_;
  std::vector<Node> nodes_;                 // the halves of node i are 2 i and 2 i + 1
  std::vector<const TakenOffsets*> taken_;  // while a block is in use
};

}  // namespace tessera
