#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/fingerprint.h"

namespace tessera {

/// The state of a rank's call.
enum class CallState : uint8_t {
  none,      ///< the rank has not made a call
  inside,    ///< the rank waits in it, or computes its result
  finished,  ///< the rank has the result
  failed,    ///< the rank has given up
};

/// The call that a rank made last in a group.
struct LastCall {
  std::string text;   ///< Fingerprint::text()
  std::string group;  ///< group_text()
  CallState state = CallState::none;
  std::chrono::steady_clock::time_point begun;

  /// Returns the call with its group, as messages name it.
  std::string with_group() const { return text + " of " + group; }
};

/// A record of the call that a rank made last in a group. It copies the fingerprint, whose name may
/// be freed after the call. The owner guards it by a lock.
class CallRecord {
 public:
  void begin(const Fingerprint& mark);
  void end() { state_ = CallState::finished; }
  void fail() { state_ = CallState::failed; }
  LastCall last(std::string group) const;

 private:
  Fingerprint mark_;  // without its name
  std::string name_;  // its memory is reused
  CallState state_ = CallState::none;
  std::chrono::steady_clock::time_point begun_;
};

/// Returns what a rank does, given its calls in all groups: those that it waits in, the last one
/// that it gave up, and the last one that it finished. "Rank 2 waits in call 3, barrier 'step' of
/// group [0, 2] on lane network".
std::string calls_text(int rank, std::span<const LastCall> calls);

}  // namespace tessera
