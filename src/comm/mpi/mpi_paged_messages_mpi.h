#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <mpi.h>

#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"

namespace tessera {

/// The messages that ranks send each other before they know that they make the same call. Such a
/// message begins with a number, which stands for the call and so for the length of the message.
///
/// A message is sent in pages, each so short that MPI sends it without asking the receiver first.
/// The first page has the number. If that differs from the expected number, there may be more or
/// fewer other pages, and none of them is waited for. The memory of messages is kept as long as the
/// communicator, because MPI may still use it then.
class MpiPagedMessages {
 public:
  /// The bytes of a page. The limit of Open MPI's shared memory is 4 KiB with headers.
  static constexpr int64_t kPageBytes = 4032;
  /// Returns the bytes of memory that a message of this many bytes is received into.
  static constexpr int64_t room(int64_t bytes) {
    return std::max<int64_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  }

  /// Begins to receive a message of this many bytes into room() bytes.
  void receive(std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      MPI_Request& request = (done == 0 ? first_ : rest_).emplace_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Irecv(memory + done, kPageBytes, MPI_BYTE, peer, tag, comm, &request),
                "MPI_Irecv");
    }
  }
  /// Begins to send a message of this many bytes.
  void send(const std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      MPI_Request& request = rest_.emplace_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(memory + done, static_cast<int>(std::min(kPageBytes, bytes - done)),
                          MPI_BYTE, peer, tag, comm, &request),
                "MPI_Isend");
    }
  }

  /// Waits for the first pages by `wait(requests)`, and then for the other pages if `same()` says
  /// that all first pages have the expected numbers. Otherwise it cancels the others. Returns the
  /// result of `same()`. No request is under way after that.
  template <typename Wait, typename Same>
  bool finish(Wait&& wait, Same&& same) {
    wait(std::span(first_));
    const bool all_same = same();
    if (all_same) {
      wait(std::span(rest_));
    } else {
      take_back(rest_);
    }
    first_.clear();
    rest_.clear();
    return all_same;
  }

 private:
  std::vector<MPI_Request> first_;  // of the first pages that are received
  std::vector<MPI_Request> rest_;   // of the other pages, and of all that are sent
};

}  // namespace tessera
