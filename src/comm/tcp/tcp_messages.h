#pragma once

#include <cstdint>

namespace tessera {

// A connection to the first rank begins with a handshake (tcp_hello.h). Then messages
// go both ways, each after its length in 64 bits. Each other rank has two connections, which both
// begin before the run does. So urgent messages do not wait behind operands.

/// The purpose of a connection.
enum class TcpPurpose : uint8_t {
  member,  ///< to say how it ended, and to hear of failures
  calls,   ///< to make the calls of its groups
};

/// The kinds of messages from a member to the first rank, with their fields.
enum class TcpSaid : uint8_t {
  work_failed,  ///< why
  ended,        ///< error, patience in ms
  abort,        ///< status
};

/// The kinds of messages from the first rank to a member, with their fields.
enum class TcpTold : uint8_t {
  alive,        ///< nothing: the first rank lives
  refused,      ///< why the run does not begin
  begun,        ///< hosts, network: all ranks have come
  failed,       ///< why; all lanes
  work_failed,  ///< why; all lanes but kControlLane
  report,       ///< Processes::Report, whether all have ended
  abort,        ///< status
};

/// The kinds of requests of a rank to the first one, by the connection for calls. The rank gives
/// its groups numbers. Each request has one reply: the group's number, an error or an empty text,
/// the bytes that the call has received from others; then the result's bytes, if there is no error.
enum class TcpAsked : uint8_t {
  group,  ///< to join a group: number, timeout in ms, ranks, lane
  call,   ///< to make a call: number, a TcpCall; then the bytes that the rank gives
};

}  // namespace tessera
