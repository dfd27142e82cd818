#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// The merges of a byte-pair encoding: which two neighbouring tokens become one, and how urgently.
/// Memory is one array, so that a look-up touches one line of the cache.
class MergeTable {
 public:
  /// Memory that merge() uses anew at each call; one thread at a time.
  struct Scratch {
    std::vector<uint64_t> candidates;
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> previous;
    std::vector<uint32_t> next;
  };

  /// Room for `count` merges.
  explicit MergeTable(size_t count);

  /// `left` and `right`, ids that are not negative, become `merged`. Lower ranks come first;
  /// pairs may share one. Of a pair that is inserted twice the later stands.
  void insert(int32_t left, int32_t right, uint32_t rank, int32_t merged);

  /// Merges `tokens`, at first one a byte or a character, until no two neighbours can be: each time
  /// the pair of the lowest rank, of several such the leftmost. Takes n log n operations for n
  /// tokens.
  void merge(std::vector<int32_t>& tokens, Scratch& scratch) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    int32_t merged;
  };

  Slot& slot(uint64_t pair);
  /// Rank and merged token in one number, the rank above; kNoMerge where the two do not merge.
  uint64_t find(int32_t left, int32_t right) const;
  void merge_few(std::vector<int32_t>& tokens, Scratch& scratch) const;
  void merge_many(std::vector<int32_t>& tokens, Scratch& scratch) const;

  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace tessera
