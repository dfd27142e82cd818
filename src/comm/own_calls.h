#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/last_call.h"

namespace tessera {

/// The calls of this process whose bytes move by MPI, and what the control plane has told about
/// them. Any thread may call any function.
class OwnCalls {
 public:
  /// The last call of this rank in a group.
  struct GroupCalls {
    std::string group;  ///< group_text()
    CallRecord last;
  };
  /// Adds a group. The pointer stays valid while this object lives.
  GroupCalls* add_group(std::string group);
  /// Calls change(calls.last) under the lock: CallRecord::begin(), end() or fail().
  template <typename Change>
  void note(GroupCalls& calls, Change&& change) {
    const std::scoped_lock lock(mutex_);
    change(calls.last);
  }
  /// Returns the last call in each group that has had one.
  std::vector<LastCall> last_calls() const;

  /// Returns a number for a new wait (PlaneWait::number).
  int64_t next_wait() {
    const std::scoped_lock lock(mutex_);
    return wait_count_++;
  }
  /// Notes that a wait cannot end, and why.
  void end_wait(int64_t wait, std::string why);
  /// Returns why a wait cannot end; none if that is not known.
  std::optional<std::string> verdict(int64_t wait) const;

  /// Notes that `rank` has withdrawn a message in a group: group_text(), and the error.
  void withdraw(int rank, const std::string& group, const std::string& why);
  bool has_withdrawn(int rank, const std::string& group) const;
  /// Returns the error of messages with `rank` in a group, because `rank` has withdrawn one of them
  /// more than kEndGrace ago; none if it has not.
  std::optional<std::string> withdrawn(int rank, const std::string& group) const;

 private:
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex_;  // guards what follows
  std::list<GroupCalls> groups_;
  int64_t wait_count_ = 0;
  std::map<int64_t, std::string> verdicts_;
  std::map<std::pair<int, std::string>, std::pair<std::string, Clock::time_point>> withdrawn_;
};

}  // namespace tessera
