#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

namespace tessera {

/// How the processes of a group meet that are on one machine: as MpiMeeting, in memory that they
/// share. A rank writes its number and its bytes to its own part, and then how many times it has
/// met. The others look there. What a rank has written is read until it meets again, so it writes
/// to two places by turns.
class SharedMeeting {
 public:
  /// What a rank gives at most, in groups of up to a thousand. Larger operands are moved faster by
  /// MPI.
  static constexpr int64_t kMostBytes = int64_t{8} << 10;
  /// Ranks of a group in which a rank can give other bytes to each.
  static constexpr int kMostDirect = 8;

  /// The meeting of the ranks of `comm`, which are on one machine and all call it. Null on all of
  /// them if it has no memory for them to share. The memory stays until the process
  /// ends.
  static std::unique_ptr<SharedMeeting> make(MPI_Comm comm);

  bool is_direct() const { return size_ <= kMostDirect; }
  int64_t most_bytes() const { return most_bytes_; }

  void begin() { ++meetings_; }
  std::byte* own() { return bytes(position_, is_direct() ? position_ : 0); }
  std::byte* own_for(int position) { return bytes(position_, position); }
  /// Returns whether all ranks gave the same number. `wait(arrived)` waits until arrived() is true,
  /// and may throw. `blocks` says that the bytes are those of own_for(), not of own().
  template <typename Wait>
  bool meet(uint64_t number, bool blocks, Wait&& wait) {
    blocks_ = blocks;
    *this->number(position_) = number;
    met(position_).store(meetings_, std::memory_order_release);
    wait([this] {
      for (int position = 0; position < size_; ++position) {
        if (met(position).load(std::memory_order_acquire) < meetings_) return false;
      }
      return true;
    });
    for (int position = 0; position < size_; ++position) {
      if (*this->number(position) != number) return false;
    }
    return true;
  }
  const std::byte* of(int position) {
    return bytes(position, blocks_ ? position_ : is_direct() ? position : 0);
  }

 private:
  static constexpr int64_t kLine = 64;  // of the processor's cache
  using Counter = std::atomic<uint64_t>;
  static_assert(Counter::is_always_lock_free);

  SharedMeeting(int size, int position);

  int64_t place_bytes() const { return kLine + (is_direct() ? size_ : 1) * most_bytes_; }
  /// How often the rank at a position has met: first in its part.
  Counter& met(int position) {
    return *reinterpret_cast<Counter*>(parts_[static_cast<size_t>(position)]);
  }
  /// The place of this meeting: the number, then the bytes.
  std::byte* place(int position) {
    return parts_[static_cast<size_t>(position)] + kLine +
           static_cast<int64_t>(meetings_ % 2) * place_bytes();
  }
  uint64_t* number(int position) { return reinterpret_cast<uint64_t*>(place(position)); }
  std::byte* bytes(int position, int block) {
    return place(position) + kLine + block * most_bytes_;
  }

  std::vector<std::byte*> parts_;  // by position
  int size_;
  int position_;
  int64_t most_bytes_;  // the numbers of rows of an all-to-all go to all ranks, too
  uint64_t meetings_ = 0;
  bool blocks_ = false;
};

}  // namespace tessera
