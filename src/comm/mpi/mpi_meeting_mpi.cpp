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
  const int64_t most = 2 * size_ * MpiPagedMessages::room(kHead + max_bytes_ + 7);
  slots_ = memory_.bytes(most);
  blocks_ = slots_ + most / 2;
  same_ = true;
}

void MpiMeeting::put_number(uint64_t number, bool blocks) {
  std::memcpy(slot(0), &number, sizeof number);
  if (!blocks) return;
  TESSERA_CHECK(direct_, "a group of {} ranks gives other bytes to each", size_);
  for (int distance = 1; distance < size_; ++distance) {
    std::memcpy(block(distance), &number, sizeof number);
  }
}

/// Begins to send and receive the slots of one round, between ranks that are `distance` positions
/// apart. A direct group has one round, of all distances.
void MpiMeeting::begin_round(int distance, bool blocks) {
  const int last = direct_ ? size_ - 1 : distance;
  const int slots = direct_ ? 1 : std::min(distance, size_ - distance);
  for (int at = distance; at <= last; ++at) {
    messages_.receive(slot(at), slots * bytes_, (position_ + at) % size_, kTag, comm_);
  }
  for (int at = distance; at <= last; ++at) {
    messages_.send(blocks ? block(size_ - at) : slot(0), slots * bytes_,
                   (position_ + size_ - at) % size_, kTag, comm_);
  }
}

/// Returns whether the ranks from which this round has received gave the number.
bool MpiMeeting::has_number(int distance, uint64_t number) {
  const int last = direct_ ? size_ - 1 : distance;
  for (int at = distance; at <= last; ++at) {
    if (std::memcmp(slot(at), &number, sizeof number) != 0) return false;
  }
  return true;
}

/// Notes that the numbers differ. Zeroes this rank's number, which ranks receive in later rounds.
void MpiMeeting::spoil() {
  same_ = false;
  std::memset(slot(0), 0, sizeof(uint64_t));
}

}  // namespace tessera
