#include "comm/in_process/meeting.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

Meeting::Meeting(std::vector<int> ranks, std::string lane, AboutRanks about)
    : ranks_(std::move(ranks)),
      lane_(std::move(lane)),
      about_(std::move(about)),
      visits_(ranks_.size()),
      ended_(ranks_.size()),
      exchanges_(ranks_.size()),
      last_calls_(ranks_.size()),
      channels_(ranks_.size() * ranks_.size()) {}

void Meeting::enter(size_t position, const Visit& visit) {
  Lock lock(mutex_);
  throw_if_broken();
  last_calls_[position].begin(*visit.mark);
  try {
    await_all(lock, position, visit);
  } catch (...) {
    last_calls_[position].fail();
    throw;
  }
}

/// Waits until all ranks make the same call.
void Meeting::await_all(Lock& lock, size_t position, const Visit& visit) {
  visits_[position] = visit;
  arrived_.push_back(position);
  check_same();
  for (size_t other = 0; other < ranks_.size(); ++other) check_messages(position, other);
  if (arrived_.size() == ranks_.size()) {
    check_rows();
    arrived_.clear();
    ++entries_;
    changed_.notify_all();
    return;
  }
  wait_for(
      lock, position, *visit.mark, [this, before = entries_] { return entries_ != before; },
      [this](size_t other) { return !waits_in_collective(other); });
}

bool Meeting::waits_in_collective(size_t position) const {
  return std::ranges::find(arrived_, position) != arrived_.end();
}

void Meeting::together() {
  Lock lock(mutex_);
  wait_for_all(lock);
}

void Meeting::leave(size_t position) {
  Lock lock(mutex_);
  wait_for_all(lock);
  last_calls_[position].end();
}

void Meeting::wait_for_all(Lock& lock) {
  if (++waiting_ == ranks_.size()) {
    waiting_ = 0;
    ++turns_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [this, before = turns_] { return turns_ != before; });
  }
}

std::string Meeting::missing_text(const Fingerprint& mark, std::span<const size_t> missing,
                                  std::chrono::milliseconds timeout) const {
  std::vector<int> there;
  std::vector<int> not_there;
  std::vector<std::string> last;
  for (size_t position = 0; position < ranks_.size(); ++position) {
    const bool absent = std::ranges::find(missing, position) != missing.end();
    (absent ? not_there : there).push_back(ranks_[position]);
    if (absent) last.push_back(about_.describe(ranks_[position]));
  }
  if (mark.collective == Collective::message) {
    there = {not_there.front() == mark.to ? mark.from : mark.to};
  }
  return timeout_text(mark.text(), text(), timeout, there, not_there, last);
}

std::string Meeting::gone_text(const Fingerprint& mark, std::span<const size_t> ended) const {
  std::vector<int> ranks;
  std::vector<std::string> last;
  for (const size_t position : ended) {
    ranks.push_back(ranks_[position]);
    last.push_back(about_.describe(ranks_[position]));
  }
  return ended_text(mark, text(), ranks, last);
}

/// Compares the rank that came last with the one that came first.
void Meeting::check_same() {
  const Visit& last = visits_[arrived_.back()];
  const Visit& first = visits_[arrived_.front()];
  if (*last.mark == *first.mark && last.moves == first.moves &&
      last.block_bytes == first.block_bytes) {
    return;
  }
  fail_locked(calls_of(arrived_));
  throw_if_broken();
}

std::string Meeting::calls_of(std::span<const size_t> positions) const {
  const auto same_mark = [&](size_t position) {
    return *visits_[position].mark == *visits_[positions.front()].mark;
  };
  const bool same_marks = std::ranges::all_of(positions, same_mark);
  std::vector<std::string> calls;
  for (const size_t position : positions) {
    const Visit& visit = visits_[position];
    std::string call = fmt::format("{} made {}", about_.text(ranks_[position]), visit.mark->text());
    if (visit.layout != nullptr) call += fmt::format(" ({})", visit.layout->text());
    if (same_marks && visit.block_bytes > 0) {
      call += fmt::format(" in blocks of {} bytes", visit.block_bytes);
    }
    if (same_marks && visit.moves != visit.mark->collective) call += " whose bytes devices move";
    calls.push_back(std::move(call));
  }
  return disagreement_text(text(), calls);
}

/// Checks that each rank receives as many rows from another as that one sends to it.
void Meeting::check_rows() {
  if (visits_[0].sent.empty()) return;
  for (size_t from = 0; from < ranks_.size(); ++from) {
    for (size_t to = 0; to < ranks_.size(); ++to) {
      const int64_t sent = visits_[from].sent[to];
      const int64_t received = visits_[to].received[from];
      if (sent == received) continue;
      fail_locked(rows_text(*visits_[0].mark, text(), ranks_[from], sent, ranks_[to], received));
      throw_if_broken();
    }
  }
}

void Meeting::fail(const std::string& message) {
  const Lock lock(mutex_);
  if (!failure_) fail_locked(message);
}

void Meeting::fail_locked(const std::string& message) {
  failure_ = message;
  changed_.notify_all();
}

void Meeting::require_whole() const {
  const std::scoped_lock lock(mutex_);
  throw_if_broken();
}

void Meeting::throw_if_broken() const {
  if (failure_) throw Error(*failure_);
}

void Meeting::end(size_t position) {
  const Lock lock(mutex_);
  ended_[position] = true;
  changed_.notify_all();
}

LastCall Meeting::last_call(size_t position) const {
  const Lock lock(mutex_);
  return last_calls_[position].last(text());
}

}  // namespace tessera
