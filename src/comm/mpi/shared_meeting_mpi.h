#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

namespace tessera {

/// The meeting of the processes of a group that are on one machine. It has the interface of
/// MpiMeeting, and works in memory that the processes share. Each rank has a part of that memory.
/// The rank writes its number and its bytes there, and then the count of its meetings, which the
/// other ranks poll. They may read the bytes until they come to the next meeting. So a rank uses
/// two slots in turn: when it begins a meeting, all ranks have come to the last one, and no rank
/// reads the slot of the meeting before the last any more.
class SharedMeeting {
 public:
  /// The most bytes that a rank gives, up to 512 ranks. MPI moves larger operands faster.
  static constexpr int64_t kMostBytes = int64_t{8} << 10;
  /// The most ranks of a direct group, in which a rank can give different bytes to each other rank.
  static constexpr int kMostDirect = 8;

  /// Returns the meeting of the ranks of `comm`, which are on one machine and all call it; null on
  /// all of them if it has no memory to share. The memory stays until the process ends.
  static std::unique_ptr<SharedMeeting> make(MPI_Comm comm);

  bool is_direct() const { return size_ <= kMostDirect; }
  int64_t max_bytes() const { return max_bytes_; }

  void begin() { ++meetings_; }
  std::byte* own_bytes() { return bytes(position_, is_direct() ? position_ : 0); }
  std::byte* own_bytes_for(int position) { return bytes(position_, position); }
  /// Returns whether all ranks gave the same number. `wait(arrived)` waits until arrived() is true,
  /// and may throw. `blocks` says that the bytes are those of own_bytes_for(), not of own_bytes().
  template <typename Wait>
  bool meet(uint64_t number, bool blocks, Wait&& wait) {
    blocks_ = blocks;
    *number_of(position_) = number;
    meeting_count(position_).store(meetings_, std::memory_order_release);
    wait([this] {
      for (int position = 0; position < size_; ++position) {
        if (meeting_count(position).load(std::memory_order_acquire) < meetings_) return false;
      }
      return true;
    });
    for (int position = 0; position < size_; ++position) {
      if (*number_of(position) != number) return false;
    }
    return true;
  }
  const std::byte* bytes_of(int position) {
    return bytes(position, blocks_ ? position_ : is_direct() ? position : 0);
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes of a line of the cache
  using Counter = std::atomic<uint64_t>;
  static_assert(Counter::is_always_lock_free);

  SharedMeeting(int size, int position);

  int64_t slot_bytes() const { return kLine + (is_direct() ? size_ : 1) * max_bytes_; }
  /// Returns the count of meetings of the rank at a position, at the beginning of the rank's part.
  Counter& meeting_count(int position) {
    return *reinterpret_cast<Counter*>(parts_[static_cast<size_t>(position)]);
  }
  /// Returns the slot of this meeting in a rank's part: the number, then the bytes.
  std::byte* slot(int position) {
    return parts_[static_cast<size_t>(position)] + kLine +
           static_cast<int64_t>(meetings_ % 2) * slot_bytes();
  }
  uint64_t* number_of(int position) { return reinterpret_cast<uint64_t*>(slot(position)); }
  /// Returns a block of a rank's slot. In a direct group, block i is for the rank at position i,
  /// and bytes for all are in the rank's own block. In other groups there is one block.
  std::byte* bytes(int position, int block) { return slot(position) + kLine + block * max_bytes_; }

  std::vector<std::byte*> parts_;  // by position
  int size_;
  int position_;
  int64_t max_bytes_;  // at least those of the numbers of rows of an all-to-all
  uint64_t meetings_ = 0;
  bool blocks_ = false;  // in this meeting, the bytes are those of own_bytes_for()
};

}  // namespace tessera
