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

/// What ranks send each other before they know that they make the same call: letters that begin
/// with a number, which stands for the call and so for the length of the letter.
///
/// A letter goes in pages, which MPI sends without waiting for the receiver; it would ask first for
/// longer messages. The first page has the number. If that is another one than was expected, the
/// other pages may be more or fewer, and none of them is waited for. The memory of letters is kept
/// as long as the communicator, because MPI may use it for so long then.
class MpiLetters {
 public:
  /// Of Open MPI's shared memory, whose limit is 4 KiB with heads.
  static constexpr int64_t kPageBytes = 4032;
  /// The memory that a letter of so many bytes is received into.
  static constexpr int64_t room(int64_t bytes) {
    return std::max<int64_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  }

  /// Begins to receive a letter of so many bytes into room() bytes.
  void receive(std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      MPI_Request& request = (done == 0 ? first_ : rest_).emplace_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Irecv(memory + done, kPageBytes, MPI_BYTE, peer, tag, comm, &request),
                "MPI_Irecv");
    }
  }
  /// Begins to send one.
  void send(const std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      MPI_Request& request = rest_.emplace_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(memory + done, static_cast<int>(std::min(kPageBytes, bytes - done)),
                          MPI_BYTE, peer, tag, comm, &request),
                "MPI_Isend");
    }
  }

  /// Waits for all letters by `wait(requests)`, if `same()` says that all first pages have the
  /// numbers that were expected. Returns what it says. Nothing is under way after that.
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
  std::vector<MPI_Request> first_;  // of the first pages that come
  std::vector<MPI_Request> rest_;   // of the others, and of those that go
};

}  // namespace tessera
