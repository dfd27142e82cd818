#include "comm/mpi/mpi_meeting_mpi.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

constexpr int kTag = 3;

/// Rounded up, so that the elements in a slot lie where the processor wants them.
int64_t slot_bytes(int64_t head, int64_t bytes) { return head + (bytes + 7) / 8 * 8; }

}  // namespace

MpiMeeting::MpiMeeting(MPI_Comm comm, int size, int position)
    : comm_(comm),
      size_(size),
      position_(position),
      // Numbers of rows go to all ranks and come from all.
      most_bytes_(std::max<int64_t>(kSmallCallBytes, 2 * size * int64_t{sizeof(int64_t)})) {}

std::byte* MpiMeeting::memory() { return slots_.bytes(size_ * slot_bytes(kHead, most_bytes_)); }

void MpiMeeting::begin(uint64_t number, int64_t bytes) {
  TESSERA_CHECK(number != 0 && bytes <= most_bytes_, "a rank gives {} bytes of at most {}", bytes,
                most_bytes_);
  number_ = number;
  same_ = true;
  slot_ = slot_bytes(kHead, bytes);
  std::memcpy(memory(), &number, sizeof number);
}

void MpiMeeting::begin_round(int distance) {
  const int slots = std::min(distance, size_ - distance);
  // A rank that makes another call may send more than this one's slots.
  const int64_t room = slots * slot_bytes(kHead, most_bytes_);
  check_mpi(MPI_Irecv(memory() + distance * slot_, static_cast<int>(room), MPI_BYTE,
                      (position_ + distance) % size_, kTag, comm_, requests_.data()),
            "MPI_Irecv");
  check_mpi(MPI_Isend(memory(), static_cast<int>(slots * slot_), MPI_BYTE,
                      (position_ + size_ - distance) % size_, kTag, comm_, &requests_[1]),
            "MPI_Isend");
}

void MpiMeeting::end_round(int distance) {
  uint64_t other = 0;
  std::memcpy(&other, memory() + distance * slot_, sizeof other);
  if (other == number_) return;
  same_ = false;
  std::memset(memory(), 0, sizeof number_);
}

}  // namespace tessera
