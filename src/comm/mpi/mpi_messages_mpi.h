#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_letters_mpi.h"
#include "comm/mpi/staging.h"
#include "comm/transport.h"

namespace tessera {

/// Bytes that one rank sends to another.
struct MpiPiece {
  int peer;
  std::byte* memory;
  int64_t bytes;
};

/// MPI 3 counts bytes in int. What is longer goes in several messages.
inline constexpr int64_t kMostMessageBytes = int64_t{1} << 30;

/// Messages between processes of a group.
///
/// The sender of a message gives the receiver its number, which stands for all that both must agree
/// about, and the receiver gives its own. A small message goes with its number, a large one after
/// both have seen that they agree.
class MpiMessages {
 public:
  /// Refers to the group.
  explicit MpiMessages(MpiGroup& group) : group_(group) {}

  /// Sends and receives messages, at most one of each direction and peer. Throws Error on both
  /// sides of one about which they do not agree.
  void exchange(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                std::span<const MarkedMessage> receives);
  /// The same with pieces of which the ranks are known to agree.
  void exchange_pieces(const Fingerprint& mark, std::span<const MpiPiece> sends,
                       std::span<const MpiPiece> receives);

 private:
  bool is_small(const MarkedMessage& message) const;
  void compare(const Fingerprint& mark, std::span<const MarkedMessage> sends,
               std::span<const MarkedMessage> receives);
  void compare_by_mail(SharedMail& mail, const Fingerprint& mark,
                       std::span<const MarkedMessage> sends,
                       std::span<const MarkedMessage> receives);
  void begin_send(const void* memory, int64_t bytes, int peer, int tag, MPI_Comm comm);
  void begin_receive(void* memory, int64_t bytes, int peer, int tag, MPI_Comm comm);
  void add_peer(int peer);
  void wait(const Fingerprint& mark, bool there);
  [[noreturn]] void throw_different(const Fingerprint& mark,
                                    std::span<const MarkedMessage* const> sent,
                                    std::span<const MarkedMessage* const> received);

  MpiGroup& group_;
  // Of one call.
  std::vector<uint64_t> numbers_;  // this rank's
  StagingMemory memory_;           // of the letters
  MpiLetters letters_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // whose requests they are
};

}  // namespace tessera
