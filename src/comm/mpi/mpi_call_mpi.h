#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

/// The most bytes of one MPI message: MPI 3 counts them in int. Longer data is split.
inline constexpr int64_t kMostMessageBytes = int64_t{1} << 30;

/// Begins to receive any number of bytes, which begin_sends() sends, and adds the requests.
inline void begin_receives(std::byte* memory, int64_t bytes, int from, int tag, MPI_Comm comm,
                           std::vector<MPI_Request>& requests) {
  for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
    const int64_t part = std::min(kMostMessageBytes, bytes - done);
    requests.push_back(begin_receive(memory + done, part, from, tag, comm));
  }
}

/// Begins to send any number of bytes, and adds the requests.
inline void begin_sends(const std::byte* memory, int64_t bytes, int to, int tag, MPI_Comm comm,
                        std::vector<MPI_Request>& requests) {
  for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
    const int64_t part = std::min(kMostMessageBytes, bytes - done);
    requests.push_back(begin_send(memory + done, part, to, tag, comm));
  }
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
