#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/last_call.h"
#include "comm/tcp/wire.h"

namespace tessera {

// What a rank tells the control plane of its calls whose bytes move by MPI, as fields of messages
// (MemberMessage). The readers take the last fields of a message, and throw BadMessage for what no
// rank of this version sends.

/// A wait of a rank in a call.
struct PlaneWait {
  int64_t number = 0;      ///< the rank numbers its waits
  std::vector<int> ranks;  ///< of the group, in its order
  std::string lane;
  OwnedMark mark;                         ///< of the call
  std::vector<int> needs;                 ///< the ranks of the group for which the rank waits
  std::chrono::milliseconds timeout{};    ///< the longest wait
  std::chrono::milliseconds remaining{};  ///< the part of it that is not over
};

void put_wait(WireWriter& message, const PlaneWait& wait);
/// Takes a wait of `rank`, one of `ranks` ranks of the run.
PlaneWait take_wait_of(WireReader& message, int rank, int ranks);

/// Calls and their states travel with the time since they have begun.
void put_calls(WireWriter& message, const std::vector<LastCall>& calls);
std::vector<LastCall> take_calls(WireReader& message);

/// A message that a rank has withdrawn.
struct PlaneWithdrawal {
  int peer = 0;       ///< the other rank of the message
  std::string group;  ///< group_text()
  std::string why;    ///< the error of the other rank
};

void put_withdrawal(WireWriter& message, const PlaneWithdrawal& withdrawal);
/// Takes a withdrawal, in a run of so many ranks.
PlaneWithdrawal take_withdrawal(WireReader& message, int ranks);

}  // namespace tessera
