#pragma once

#include <cstdint>

namespace tessera {

// A connection to the first rank begins with a handshake (tcp_hello.h). Then letters go both ways,
// each after its length in 64 bits. Another rank has two connections, which both begin before the
// run does: by the one it hears what it must hear at once, although operands fill the other.

/// What a rank connects for.
enum class TcpPurpose : uint8_t {
  member,  ///< to say how it ended, and to hear of failures
  calls,   ///< to make the calls of its groups
};

/// What a member says to the first rank.
enum class TcpSaid : uint8_t {
  work_failed,  ///< why
  ended,        ///< error, patience in ms
  abort,        ///< status
};

/// What the first rank says to a member.
enum class TcpTold : uint8_t {
  alive,        ///< nothing: it lives
  refused,      ///< why the run does not begin
  begun,        ///< hosts, network: all ranks have come
  failed,       ///< why; all lanes
  work_failed,  ///< why; all lanes but kControlLane
  report,       ///< Processes::Report, whether all have ended
  abort,        ///< status
};

/// The questions of a rank to the first one by its calls' connection. It gives its groups numbers.
/// Each question has one answer: the group's number, an error or an empty text, the bytes that the
/// call has received from others; then the result's bytes, if there is no error.
enum class TcpAsked : uint8_t {
  group,  ///< number, timeout in ms, ranks, lane: to be one of a group
  call,   ///< number, a TcpCall; then the bytes that the rank gives
};

}  // namespace tessera
