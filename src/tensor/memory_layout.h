#pragma once

#include <cstdint>
#include <map>

namespace tessera {

/// The bookkeeping of a memory pool without the memory: best fit over the holes between blocks, and
/// where none fits, behind the last block. It is deterministic, and what was in use once leaves no
/// trace: equal blocks in use and equal calls give equal offsets. So a plan that replays a step's
/// allocations learns the peak and the extent of every step exactly, fragmentation included.
class MemoryLayout {
 public:
  static constexpr int64_t kAlignment = 64;

  /// Bytes that an allocation of `bytes` takes: rounded up to the alignment, at least one unit.
  static int64_t rounded(int64_t bytes);

  /// Returns the offset of a fresh block of rounded(bytes).
  int64_t allocate(int64_t bytes);
  /// The extent() after an allocate(bytes).
  int64_t extent_after(int64_t bytes) const;
  /// Gives a block back; `offset` comes from allocate().
  void release(int64_t offset);

  /// Bytes in blocks now in use.
  int64_t in_use() const { return in_use_; }
  /// The most that was ever in use at once since the last reset_peak().
  int64_t peak_in_use() const { return peak_in_use_; }
  /// The highest address ever used: what the pool needs from the system.
  int64_t extent() const { return extent_; }
  void reset_peak() { peak_in_use_ = in_use_; }

 private:
  void insert_free(int64_t offset, int64_t size);
  /// Where a block begins that fits in no hole: behind the last one.
  int64_t growth_offset() const;
  void erase_free(std::map<int64_t, int64_t>::iterator block);

  std::map<int64_t, int64_t> used_;               // offset -> size
  std::map<int64_t, int64_t> free_by_offset_;     // offset -> size, of holes before a block
  std::multimap<int64_t, int64_t> free_by_size_;  // size -> offset, in order of insertion
  int64_t in_use_ = 0;
  int64_t peak_in_use_ = 0;
  int64_t extent_ = 0;
};

}  // namespace tessera
