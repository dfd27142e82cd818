#include "comm/mpi/mpi_meeting_mpi.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int kTag = 3;  // MpiMessages has other tags on the same communicator
/// The most bytes that a rank gives in a group that is not direct, where other ranks forward them.
constexpr int64_t kMostForwardedBytes = 2048;

}  // namespace

MpiMeeting::MpiMeeting(MPI_Comm comm, int size, int position, int max_direct_ranks)
    : comm_(comm),
      size_(size),
      position_(position),
      direct_(size <= max_direct_ranks),
      // Enough for the numbers of rows of an all-to-all, which go to all ranks.
      max_bytes_(std::max<int64_t>(direct_ ? kSmallCallBytes : kMostForwardedBytes,
                                   2 * size * int64_t{sizeof(int64_t)})) {}

void MpiMeeting::begin(int64_t bytes) {
  TESSERA_CHECK(bytes <= max_bytes_, "a rank gives {} bytes of at most {}", bytes, max_bytes_);
  // Rounded up, so that the elements in a slot are aligned.
  bytes_ = kHead + (bytes + 7) / 8 * 8;
  // If the group is not direct, several slots are sent in one message, so they are contiguous.
  stride_ = direct_ ? MpiPagedMessages::room(bytes_) : bytes_;
  // Always the largest size: MPI may still write to this memory (MpiPagedMessages).
  const int64_t memory_bytes = 2 * size_ * MpiPagedMessages::room(kHead + max_bytes_ + 7);
  slots_ = memory_.bytes(memory_bytes);
  blocks_ = slots_ + memory_bytes / 2;
  all_same_ = true;
}

void MpiMeeting::put_number(uint64_t number, bool blocks) {
  std::memcpy(slot(0), &number, sizeof number);
  if (!blocks) return;
  TESSERA_CHECK(direct_, "a group of {} ranks gives other bytes to each", size_);
  for (int distance = 1; distance < size_; ++distance) {
    std::memcpy(block(distance), &number, sizeof number);
  }
}

/// Begins to send and receive the slots of one round, between ranks that are `first_distance`
/// positions apart. A direct group has one round, of all distances.
void MpiMeeting::begin_round(int first_distance, bool blocks) {
  const int last_distance = direct_ ? size_ - 1 : first_distance;
  const int slots = direct_ ? 1 : std::min(first_distance, size_ - first_distance);
  for (int distance = first_distance; distance <= last_distance; ++distance) {
    messages_.receive(slot(distance), slots * bytes_, (position_ + distance) % size_, kTag, comm_);
  }
  for (int distance = first_distance; distance <= last_distance; ++distance) {
    messages_.send(blocks ? block(size_ - distance) : slot(0), slots * bytes_,
                   (position_ + size_ - distance) % size_, kTag, comm_);
  }
}

/// Returns whether the ranks from which this round has received gave the number.
bool MpiMeeting::has_number(int first_distance, uint64_t number) {
  const int last_distance = direct_ ? size_ - 1 : first_distance;
  for (int distance = first_distance; distance <= last_distance; ++distance) {
    if (std::memcmp(slot(distance), &number, sizeof number) != 0) return false;
  }
  return true;
}

/// Notes that the numbers differ. Zeroes this rank's number, which ranks receive in later rounds.
void MpiMeeting::note_difference() {
  all_same_ = false;
  std::memset(slot(0), 0, sizeof(uint64_t));
}

}  // namespace tessera
