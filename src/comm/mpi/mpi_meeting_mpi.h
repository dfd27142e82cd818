#pragma once

#include <cstddef>
#include <cstdint>

#include <mpi.h>

#include "comm/mpi/mpi_paged_messages_mpi.h"
#include "comm/mpi/staging.h"

namespace tessera {

/// The meeting of the processes of a group by messages of MPI. Each process gives a number and some
/// bytes to all others, and learns whether all gave the same number. The number is the hash of a
/// call. Processes that make the same call give equally many bytes.
///
/// A *slot* is the number and the bytes of one rank. In a small group each rank sends its slot to
/// each other rank: the group is *direct*. In a larger group a rank first sends its slot to the
/// rank one position before. Then it sends the two slots that it has to the rank two positions
/// before, then four, and so on. After log2(ranks) rounds, rounded up, each rank has all slots
/// (Bruck, 1997). A rank that receives a different number sets its own number to zero. So in the
/// end all ranks learn that the numbers differ.
class MpiMeeting {
 public:
  /// The most ranks of a direct group.
  static constexpr int kMostDirect = 8;

  /// Creates the meeting of the rank at `position`. `comm` has only the ranks of the group. Nobody
  /// else sends messages of this kind (tag) on it.
  MpiMeeting(MPI_Comm comm, int size, int position, int max_direct_ranks = kMostDirect);

  /// Returns whether a rank can give different bytes to each other rank.
  bool is_direct() const { return direct_; }
  /// Returns the most bytes that a rank gives: the same on all ranks, whatever they call.
  int64_t max_bytes() const { return max_bytes_; }

  /// Begins a meeting in which each rank gives this many bytes to each other rank.
  void begin(int64_t bytes);
  /// Returns the memory for the bytes that this rank gives to all.
  std::byte* own_bytes() { return slot(0) + kHead; }
  /// Returns the memory for the bytes that this rank gives to the rank at a position, even its own.
  std::byte* own_bytes_for(int position) {
    const int distance = distance_to(position);
    return (distance == 0 ? slot(0) : block(distance)) + kHead;
  }
  /// Meets the other ranks. Returns whether all ranks gave the same number, which is not zero.
  /// `wait(requests)` waits for requests of MPI. If it throws, the group cannot meet again.
  /// `blocks` says that the bytes are those of own_bytes_for(), not of own_bytes().
  template <typename Wait>
  bool meet(uint64_t number, bool blocks, Wait&& wait) {
    put_number(number, blocks);
    const int step = direct_ ? size_ : 2;
    for (int distance = 1; distance < size_; distance *= step) {
      begin_round(distance, blocks);
      if (!messages_.finish(wait, [&] { return has_number(distance, number); })) note_difference();
    }
    return all_same_;
  }
  /// Returns the bytes that the rank at a position gave, after meet() has returned true.
  const std::byte* bytes_of(int position) { return slot(distance_to(position)) + kHead; }

 private:
  static constexpr int64_t kHead = sizeof(uint64_t);  // bytes of the number

  int distance_to(int position) const { return (position + size_ - position_) % size_; }
  std::byte* slot(int distance) { return slots_ + distance * stride_; }
  std::byte* block(int distance) { return blocks_ + distance * stride_; }
  void put_number(uint64_t number, bool blocks);
  void begin_round(int first_distance, bool blocks);
  bool has_number(int first_distance, uint64_t number);
  void note_difference();

  MPI_Comm comm_;
  int size_;
  int position_;
  bool direct_;
  int64_t max_bytes_;
  StagingMemory memory_;
  std::byte* slots_ = nullptr;   // of all ranks, by their distance from this rank
  std::byte* blocks_ = nullptr;  // the slots with different bytes for the others, by distance
  int64_t bytes_ = 0;            // of a slot
  int64_t stride_ = 0;           // from one slot to the next
  bool all_same_ = true;         // no different number has come
  MpiPagedMessages messages_;
};

}  // namespace tessera
