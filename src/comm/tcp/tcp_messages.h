#pragma once

#include <cstdint>

namespace tessera {

// The messages between the first rank and the others. Each other rank has two connections to the
// first one. Both begin with a handshake (tcp_hello.h) before the run begins. Then messages go both
// ways, each after its length in 64 bits. Failures have a connection of their own, so they do not
// wait behind the operands of calls.

/// The purpose of a connection.
enum class TcpPurpose : uint8_t {
  member,  ///< to report how the rank ended, and to learn of failures
  calls,   ///< to make the calls of the rank's groups
};

/// The kinds of messages from a member to the first rank, with their fields.
enum class MemberMessage : uint8_t {
  work_failed,  ///< why
  ended,        ///< error, patience in ms
  abort,        ///< status
};

/// The kinds of messages from the first rank to a member, with their fields.
enum class FirstRankMessage : uint8_t {
  alive,        ///< nothing: a sign of life
  refused,      ///< why the run does not begin
  begun,        ///< hosts, network: all ranks have come
  failed,       ///< why; all lanes
  work_failed,  ///< why; all lanes but kControlLane
  report,       ///< Processes::Report, whether all have ended
  abort,        ///< status
};

/// The kinds of requests by the connection for calls. The rank gives its groups numbers. Each
/// request has one reply: the group's number, an error or an empty text, the bytes that the call
/// has received from other ranks. If there is no error, the result's bytes follow.
enum class CallRequest : uint8_t {
  group,  ///< to join a group: number, timeout in ms, ranks, lane
  call,   ///< to make a call: number, a TcpCall; then the bytes of the rank's operands
};

}  // namespace tessera
