#include "comm/own_calls.h"

#include "comm/wait_time.h"

namespace tessera {

OwnCalls::GroupCalls* OwnCalls::add_group(std::string group) {
  const std::scoped_lock lock(mutex_);
  groups_.push_back({std::move(group), {}});
  return &groups_.back();
}

std::vector<LastCall> OwnCalls::last_calls() const {
  const std::scoped_lock lock(mutex_);
  std::vector<LastCall> calls;
  for (const GroupCalls& group : groups_) {
    LastCall call = group.last.last(group.group);
    if (call.state != CallState::none) calls.push_back(std::move(call));
  }
  return calls;
}

void OwnCalls::end_wait(int64_t wait, std::string why) {
  const std::scoped_lock lock(mutex_);
  verdicts_.emplace(wait, std::move(why));
}

std::optional<std::string> OwnCalls::verdict(int64_t wait) const {
  const std::scoped_lock lock(mutex_);
  const auto found = verdicts_.find(wait);
  return found == verdicts_.end() ? std::nullopt : std::optional(found->second);
}

void OwnCalls::withdraw(int rank, const std::string& group, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  withdrawn_.try_emplace({rank, group}, why, Clock::now());
}

bool OwnCalls::has_withdrawn(int rank, const std::string& group) const {
  const std::scoped_lock lock(mutex_);
  return !withdrawn_.empty() && withdrawn_.contains({rank, group});
}

std::optional<std::string> OwnCalls::withdrawn(int rank, const std::string& group) const {
  const std::scoped_lock lock(mutex_);
  const auto found = withdrawn_.find({rank, group});
  if (found == withdrawn_.end() || found->second.second > Clock::now() - kEndGrace) return {};
  return found->second.first;
}

}  // namespace tessera
