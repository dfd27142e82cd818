#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <mpi.h>

#include "comm/mpi/staging.h"

namespace tessera {

/// How the processes of a group meet: each gives a number and some bytes to all others, and learns
/// whether all gave the same number.
///
/// In the first round a rank gives its slot, the number and the bytes, to the rank before it. In
/// the second it gives the two slots that it has then to the rank two places before, and so on: all
/// slots are everywhere after as many rounds as the ranks can be halved (Bruck, 1997). The number
/// stands for the call, and so for the size of its slots. A rank that gets another number puts zero
/// in place of its own from then on, so that all ranks get another number in the end.
class MpiMeeting {
 public:
  /// `comm` has the ranks of the group alone, and no other messages of this tag.
  MpiMeeting(MPI_Comm comm, int size, int position);

  /// The most bytes that a rank gives: the same on all ranks, whatever they call.
  int64_t most_bytes() const { return most_bytes_; }
  /// Where the bytes go that this rank gives, before meet().
  std::byte* own() { return memory() + kHead; }
  /// The bytes of the rank at a position, after meet() has returned true.
  const std::byte* of(int position) {
    return memory() + (position + size_ - position_) % size_ * slot_ + kHead;
  }

  /// Returns whether all ranks gave the same number, which is not zero. `wait(requests)` waits for
  /// requests of MPI, and may throw. The group cannot meet again after that.
  template <typename Wait>
  bool meet(uint64_t number, int64_t bytes, Wait&& wait) {
    begin(number, bytes);
    for (int distance = 1; distance < size_; distance *= 2) {
      begin_round(distance);
      wait(std::span(requests_));
      end_round(distance);
    }
    return same_;
  }

 private:
  static constexpr int64_t kHead = sizeof(uint64_t);

  std::byte* memory();
  void begin(uint64_t number, int64_t bytes);
  void begin_round(int distance);
  void end_round(int distance);

  MPI_Comm comm_;
  int size_;
  int position_;
  int64_t most_bytes_;
  /// Slots, this rank's first. MPI may still use them after a meeting that was given up.
  StagingMemory slots_;
  int64_t slot_ = kHead;  // bytes of a slot
  uint64_t number_ = 0;
  bool same_ = true;
  std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

}  // namespace tessera
