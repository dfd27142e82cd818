#pragma once

#include <cstdint>

namespace tessera {

// The messages between the first rank and the others. Each other rank has two connections to the
// first one, so that news of failures does not wait behind the operands of calls. Both begin with a
// handshake (tcp_hello.h). Then messages go both ways, each after its length in 64 bits.

/// The purpose of a connection.
enum class TcpPurpose : uint8_t {
  member,  ///< to report how the rank ended, and to learn of failures
  calls,   ///< to make the calls of the rank's groups
};

/// The kinds of messages to the first rank on the connection TcpPurpose::member, with their fields.
enum class MemberMessage : uint8_t {
  work_failed,  ///< why
  ended,        ///< error, patience in ms
  abort,        ///< status
  waits,        ///< a PlaneWait, which has lasted for a moment
  goes_on,      ///< the number of a PlaneWait that has ended
  withdrew,     ///< a PlaneWithdrawal
  answer,       ///< the number of a question; the rank's calls (put_calls())
};

/// The kinds of messages from the first rank to another rank on that connection, with their fields.
enum class FirstRankMessage : uint8_t {
  alive,        ///< a sign of life, without fields
  refused,      ///< why the run does not begin
  begun,        ///< hosts, network: all ranks have come
  failed,       ///< why; all lanes
  work_failed,  ///< why; all lanes but kControlLane
  report,       ///< Processes::Report, whether all have ended
  abort,        ///< status
  question,     ///< number: what does the rank do?
  verdict,      ///< the number of a PlaneWait, and why it cannot end
  withdrawn,    ///< the other rank, and the group and the error of a PlaneWithdrawal
};

/// The kinds of requests on the connection of TcpPurpose::calls. The rank numbers its groups, and
/// in each group its posts, from 0 on. Requests of the first three kinds have one reply: the
/// group's number; the text of an error, or an empty text; and how many bytes the call has received
/// from other ranks. Without an error, the bytes of the results follow. The other requests have no
/// reply: the errors of a post are those of its wait.
enum class CallRequest : uint8_t {
  group,     ///< to join a group: group number, timeout in ms, ranks, lane
  call,      ///< to make a call: group number, a TcpCall; then the bytes of the rank's operands
  wait,      ///< to wait for posts: group number, a TcpWait
  post,      ///< to post a message: group number, a TcpMessage; then its bytes, if it is sent
  withdraw,  ///< to withdraw a message: group number, the number of its post
  leave,     ///< to leave a group, in which the rank makes no more calls: group number
};

}  // namespace tessera
