#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_paged_messages_mpi.h"
#include "comm/mpi/staging.h"
#include "comm/transport.h"

namespace tessera {

/// Bytes that are sent to, or received from, another rank.
struct MpiPiece {
  int peer;  ///< the position of the other rank
  std::byte* memory;
  int64_t bytes;
};

/// The most bytes of one MPI message: MPI 3 counts them in int. Longer data is split.
inline constexpr int64_t kMostMessageBytes = int64_t{1} << 30;

/// Messages between processes of a group.
///
/// The two ranks of a message first send each other a number: the hash of their own fingerprint of
/// the message. The bytes of a small message go with the sender's number. The bytes of a large one
/// follow after both ranks have seen that the numbers are equal. Ranks of one machine exchange the
/// numbers in memory that they share (SharedMail), others by messages of MPI (MpiPagedMessages).
class MpiMessages {
 public:
  /// Refers to the group.
  explicit MpiMessages(MpiGroup& group) : group_(group) {}

  /// Sends and receives messages, at most one for each direction and peer. If the two ranks of a
  /// message do not agree about it, both throw Error.
  void exchange(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                std::span<const MarkedMessage> receives);
  /// Sends and receives pieces about which the ranks are known to agree.
  void exchange_pieces(const Fingerprint& mark, std::span<const MpiPiece> sends,
                       std::span<const MpiPiece> receives);

 private:
  bool is_small(const MarkedMessage& message) const;
  void compare(const Fingerprint& mark, std::span<const MarkedMessage> sends,
               std::span<const MarkedMessage> receives);
  void compare_by_mail(SharedMail& mail, const Fingerprint& mark,
                       std::span<const MarkedMessage> sends,
                       std::span<const MarkedMessage> receives);
  // These two begin to move bytes, in messages of at most kMostMessageBytes, for wait().
  void send(const std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm);
  void receive(std::byte* memory, int64_t bytes, int peer, int tag, MPI_Comm comm);
  void add_peer(int peer);
  void wait(const Fingerprint& mark, Backoff::Between between);
  [[noreturn]] void throw_different(const Fingerprint& mark,
                                    std::span<const MarkedMessage* const> sent,
                                    std::span<const MarkedMessage* const> received);

  MpiGroup& group_;
  // The state of the call that is being made.
  std::vector<uint64_t> numbers_;  // this rank's numbers, of sends and then of receives
  StagingMemory memory_;           // of the headers (MpiPagedMessages)
  MpiPagedMessages paged_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // the positions of the other ranks of the requests
};

}  // namespace tessera
