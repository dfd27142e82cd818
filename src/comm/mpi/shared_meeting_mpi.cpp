#include "comm/mpi/shared_meeting_mpi.h"

#include <algorithm>

#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/shared_parts_mpi.h"

namespace tessera {

SharedMeeting::SharedMeeting(int size, int position)
    : size_(size),
      position_(position),
      max_bytes_(std::max<int64_t>(kMostBytes, 2 * size * int64_t{sizeof(int64_t)})) {}

std::unique_ptr<SharedMeeting> SharedMeeting::make(MPI_Comm comm) {
  auto meeting =
      std::unique_ptr<SharedMeeting>(new SharedMeeting(ranks_of(comm), position_in(comm)));
  meeting->parts_ = share_parts(comm, kLine + 2 * meeting->slot_bytes());
  return meeting->parts_.empty() ? nullptr : std::move(meeting);
}

}  // namespace tessera
