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

/// One message of an exchange of messages between ranks, as a request has it.
struct TcpMessage {
  OwnedMark mark;
  int peer = 0;
  int64_t elements = 0;
};

/// A call of a rank in a group, as a request has it. The bytes that the rank gives follow the
/// request, and those that it gets follow the reply. The request does not have their sizes:
/// read_call() finds them from its other fields.
struct TcpCall {
  /// The movement of the operands; a barrier if devices move them.
  Collective moves = Collective::barrier;
  std::chrono::milliseconds timeout{};
  OwnedMark mark;                     ///< of all calls but exchanges
  std::optional<PieceLayout> layout;  ///< of pieces that are gathered or scattered
  std::vector<int64_t> sent;          ///< rows to each position
  std::vector<int64_t> received;      ///< rows from each position
  int64_t row = 0;                    ///< elements of one row
  int root = 0;                       ///< the position that broadcasts
  std::vector<TcpMessage> sends;
  std::vector<TcpMessage> receives;
  int64_t given_bytes = 0;   ///< what the rank gives
  int64_t result_bytes = 0;  ///< what the rank gets
};

/// Reads a call of the rank at a position of a group. Throws BadMessage unless all its numbers
/// agree with each other and with the group. A transport can then make the call without further
/// checks.
TcpCall read_call(WireReader& request, std::span<const int> ranks, int position);

}  // namespace tessera
