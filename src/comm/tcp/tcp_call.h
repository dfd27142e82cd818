#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/tcp/wire.h"
#include "comm/transport.h"

namespace tessera {

/// A request to post a message (CallRequest::post).
struct TcpMessage {
  bool sent = false;  ///< by the rank that requests it
  OwnedMark mark;
  int peer = 0;
  int64_t elements = 0;

  int64_t bytes() const { return elements * dtype_size(mark.mark.dtype); }
};

/// A request to wait for messages that the rank has posted (CallRequest::wait). The bytes of those
/// that it receives follow the reply, in this order.
struct TcpWait {
  std::chrono::milliseconds timeout{};
  std::vector<int64_t> posts;  ///< their numbers, which the caller checks
};

/// A request for a collective of a rank in a group (CallRequest::call). The bytes of the rank's
/// operands follow the request, and the bytes of its results follow the reply. The request does not
/// state how many they are: read_call() computes the two numbers from the other fields.
struct TcpCall {
  /// The collective that moves the operands; a barrier if devices move them.
  Collective moves = Collective::barrier;
  std::chrono::milliseconds timeout{};
  OwnedMark mark;
  std::optional<PieceLayout> layout;  ///< of all_gather and reduce_scatter
  std::vector<int64_t> sent;          ///< of an all-to-all: the rows to each position
  std::vector<int64_t> received;      ///< of an all-to-all: the rows from each position
  int64_t row_elements = 0;           ///< of an all-to-all
  int root = 0;                       ///< of broadcast: a position
  int64_t given_bytes = 0;            ///< of the operands
  int64_t result_bytes = 0;           ///< of the results
};

/// Writes the fields that read_call() reads.
void put_call(WireWriter& request, std::chrono::milliseconds timeout, const TransportCall& call);
/// Reads a request of the rank at `position` of the group `ranks`. Throws BadMessage unless its
/// numbers agree with each other and with the group. The call then needs no further checks.
TcpCall read_call(WireReader& request, std::span<const int> ranks, int position);
/// Reads a request of the same rank to post a message. Throws as read_call() does.
TcpMessage read_post(WireReader& request, std::span<const int> ranks, int position);
/// Reads a request to wait for posts. Throws BadMessage if there are none or too many.
TcpWait read_wait(WireReader& request);

}  // namespace tessera
