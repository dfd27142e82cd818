#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// What a connection to the first rank begins with: whose it is, and the version of its letters. A
/// machine with another order of bytes sends another one.
inline constexpr uint64_t kTcpGreeting = 0x5465737365726131;  // "Tessera1"

/// What a rank connects for.
enum class TcpPurpose : uint8_t {
  member,  ///< to be one of the run: number of ranks, rank, host
  group,   ///< to make the calls of a group: rank, timeout, ranks, lane
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
  refused,      ///< why the rank cannot be one of the run
  begun,        ///< hosts: all ranks have come
  failed,       ///< why; all lanes
  work_failed,  ///< why; all lanes but kControlLane
  report,       ///< Processes::Report, whether all have ended
  abort,        ///< status, why
};

}  // namespace tessera
