#pragma once

#include <array>
#include <cstdint>
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

/// Begins to receive bytes from the rank at a position of a communicator, and returns the request.
inline MPI_Request begin_receive(void* memory, int64_t bytes, int from, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(memory, static_cast<int>(bytes), MPI_BYTE, from, tag, comm, &request),
            "MPI_Irecv");
  return request;
}

/// Begins to send bytes to the rank at a position of a communicator, and returns the request.
inline MPI_Request begin_send(const void* memory, int64_t bytes, int to, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(memory, static_cast<int>(bytes), MPI_BYTE, to, tag, comm, &request),
            "MPI_Isend");
  return request;
}

}  // namespace tessera
