#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// The merges of a byte-pair encoding: the pairs of neighbouring tokens that become one token, with
/// their priorities. The table is one array, so a look-up mostly touches one cache line.
class MergeTable {
 public:
  /// Memory that merge() reuses in each call. One thread at a time may use it.
  struct Scratch {
    std::vector<uint64_t> candidates;
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> previous;
    std::vector<uint32_t> next;
  };

  /// Reserves memory for `count` merges.
  explicit MergeTable(size_t count);

  /// Inserts a merge: `left` and `right`, ids that are not negative, become `merged`. Lower ranks
  /// come first, and pairs may share a rank. If a pair is inserted twice, the later entry counts.
  void insert(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  /// Merges `tokens`, at first one per byte or character, until no two neighbours can be merged.
  /// Each step merges the pair with the lowest rank, the leftmost of several. Needs n log n
  /// operations for n tokens.
  void merge(std::vector<int32_t>& tokens, Scratch& scratch) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    int32_t merged;
  };

  /// Returns the slot of `pair`, or the empty slot that it would take.
  Slot& slot(uint64_t pair);
  /// Returns the rank (high bits) and the merged token (low bits) in one number, or kNoMerge if the
  /// two do not merge.
  uint64_t find(int32_t left, int32_t right) const;
  void merge_by_scan(std::vector<int32_t>& tokens, Scratch& scratch) const;
  void merge_by_heap(std::vector<int32_t>& tokens, Scratch& scratch) const;

  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace tessera
