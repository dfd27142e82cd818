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
/// A message is sent in pages. Each page is so short that MPI sends it without asking the receiver
/// first. The first page has the number. If it is not the expected number, the sender may send more
/// or fewer pages than this rank expects, so this rank does not wait for the other pages. MPI may
/// still write them to their memory later. That memory must live as long as the communicator.
class MpiPagedMessages {
 public:
  /// The bytes of a page. Open MPI's shared memory sends up to 4 KiB, with its headers, at once.
  static constexpr int64_t kPageBytes = 4032;
  /// Returns the bytes of memory into which a message of this many bytes is received: whole pages.
  static constexpr int64_t room(int64_t bytes) {
    return std::max<int64_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  }

  /// Begins to receive a message of this many bytes into room() bytes.
  void receive(std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      std::vector<MPI_Request>& requests = done == 0 ? first_ : others_;
      requests.push_back(begin_receive(memory + done, kPageBytes, peer, tag, comm));
    }
  }
  void send(const std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm) {
    for (int64_t done = 0; done < bytes; done += kPageBytes) {
      const int64_t page = std::min(kPageBytes, bytes - done);
      others_.push_back(begin_send(memory + done, page, peer, tag, comm));
    }
  }

  /// Waits for the first pages by `wait(requests)`. `same()` then says whether all of them have the
  /// expected numbers. If so, waits for the other pages; otherwise cancels them. Returns the result
  /// of `same()`. No request is under way afterwards.
  template <typename Wait, typename Same>
  bool finish(Wait&& wait, Same&& same) {
    wait(std::span(first_));
    const bool all_same = same();
    if (all_same) {
      wait(std::span(others_));
    } else {
      cancel(others_);
    }
    first_.clear();
    others_.clear();
    return all_same;
  }

 private:
  std::vector<MPI_Request> first_;   // of the first pages that are received
  std::vector<MPI_Request> others_;  // of the other pages, and of all that are sent
};

}  // namespace tessera
