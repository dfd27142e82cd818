#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The description of one message in a request for an exchange (Transport::exchange()).
struct TcpMessage {
  OwnedMark mark;
  int peer = 0;
  int64_t elements = 0;
};

/// A request for a call of a rank in a group (CallRequest::call). The bytes of the rank's operands
/// follow the request, and the bytes of its results follow the reply. The request does not state
/// how many they are: read_call() computes the two numbers from the other fields.
struct TcpCall {
  /// The collective that moves the operands; a barrier if devices move them.
  Collective moves = Collective::barrier;
  std::chrono::milliseconds timeout{};
  OwnedMark mark;                     ///< not used by exchanges, whose messages have their own
  std::optional<PieceLayout> layout;  ///< of all_gather and reduce_scatter
  std::vector<int64_t> sent;          ///< of all_to_all_rows: the rows to each position
  std::vector<int64_t> received;      ///< of all_to_all_rows: the rows from each position
  int64_t row_elements = 0;           ///< of all_to_all_rows
  int root = 0;                       ///< of broadcast: a position
  std::vector<TcpMessage> sends;      ///< of exchanges
  std::vector<TcpMessage> receives;
  int64_t given_bytes = 0;   ///< of the operands
  int64_t result_bytes = 0;  ///< of the results
};

/// Reads a request of the rank at `position` of the group `ranks`. Throws BadMessage unless its
/// numbers agree with each other and with the group. The call then needs no further checks.
TcpCall read_call(WireReader& request, std::span<const int> ranks, int position);

}  // namespace tessera
