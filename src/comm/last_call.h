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
  inside,    ///< the rank waits in the call, or computes its result
  finished,  ///< the rank has the result
  failed,    ///< the call has thrown an error
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

/// A record of the call that a rank made last in a group. It copies the fingerprint, because the
/// text of its name may be freed after the call. The owner of the record guards it by a lock.
class CallRecord {
 public:
  void begin(const Fingerprint& mark);
  void end() { state_ = CallState::finished; }
  void fail() { state_ = CallState::failed; }
  LastCall last(std::string group) const;

 private:
  Fingerprint mark_;  // without its name
  std::string name_;  // a member, so that its memory is reused by the next call
  CallState state_ = CallState::none;
  std::chrono::steady_clock::time_point begun_;
};

/// Returns what a rank does: "Rank 2 waits in call 3, barrier 'step' of group [0, 2] on lane
/// network". `last_calls` has its last call in each group. The text names all calls in which the
/// rank waits, the last one that failed, and the last one that it finished.
std::string calls_text(int rank, std::span<const LastCall> last_calls);

}  // namespace tessera
