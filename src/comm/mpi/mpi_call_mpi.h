#pragma once

#include <array>
#include <span>
#include <string_view>

#include <mpi.h>

#include "base/error.h"

namespace tessera {

/// Throws Error with MPI's description if a call of MPI failed. `call` is the function's name.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error("{} failed: {}", call, std::string_view(text.data(), static_cast<size_t>(length)));
}

/// Returns the number of ranks of a communicator.
inline int ranks_of(MPI_Comm comm) {
  int ranks = 0;
  check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  return ranks;
}

/// Returns this process's position in a communicator.
inline int position_in(MPI_Comm comm) {
  int position = 0;
  check_mpi(MPI_Comm_rank(comm, &position), "MPI_Comm_rank");
  return position;
}

/// Returns whether requests of MPI are done.
inline bool are_done(std::span<MPI_Request> requests) {
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  return done != 0;
}

/// Cancels the messages that are not done, and frees their requests. MPI may still use the memory
/// of those that another rank has begun to move.
inline void cancel(std::span<MPI_Request> messages) {
  for (MPI_Request& message : messages) {
    if (message == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&message);
    MPI_Request_free(&message);
  }
}

}  // namespace tessera
