#include "comm/in_process/meeting.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

// The waits of a collective are enter(), with a timeout, then synchronize() where other ranks read
// a result, and leave(). Messages are in meeting_messages.cpp.

namespace tessera {

Meeting::Meeting(std::vector<int> ranks, std::string lane, AboutRanks about)
    : ranks_(std::move(ranks)),
      lane_(std::move(lane)),
      about_(std::move(about)),
      calls_(ranks_.size()),
      ended_(ranks_.size()),
      awaited_(ranks_.size()),
      last_calls_(ranks_.size()),
      channels_(ranks_.size() * ranks_.size()) {}

void Meeting::enter(size_t position, const TransportCall& call) {
  Lock lock(mutex_);
  if (failure_) throw Error(*failure_);
  last_calls_[position].begin(call.mark);
  try {
    await_all(lock, position, call);
  } catch (...) {
    last_calls_[position].fail();
    throw;
  }
}

/// Waits until all ranks have arrived, and compares their calls.
void Meeting::await_all(Lock& lock, size_t position, const TransportCall& call) {
  calls_[position] = &call;
  arrived_.push_back(position);
  check_same_call();
  for (size_t other = 0; other < ranks_.size(); ++other) check_messages(position, other);
  if (arrived_.size() == ranks_.size()) {
    check_rows();
    arrived_.clear();
    ++begun_calls_;
    changed_.notify_all();
    return;
  }
  wait_for(
      lock, position, call.mark, [this, before = begun_calls_] { return begun_calls_ != before; },
      [this](size_t other) { return std::ranges::find(arrived_, other) == arrived_.end(); });
}

void Meeting::synchronize() {
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
    ++barriers_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [this, before = barriers_] { return barriers_ != before; });
  }
}

/// Returns the error of a call in which the ranks at `missing` have ended or did not come in time.
std::string Meeting::missing_text(const Fingerprint& mark, std::span<const size_t> missing,
                                  bool have_ended, std::chrono::milliseconds timeout) const {
  std::vector<int> waiting;
  std::vector<int> missing_ranks;
  for (size_t position = 0; position < ranks_.size(); ++position) {
    const bool is_missing = std::ranges::find(missing, position) != missing.end();
    (is_missing ? missing_ranks : waiting).push_back(ranks_[position]);
  }
  const std::vector<std::string> last_calls = about_.describe(missing_ranks);
  if (have_ended) return ended_text(mark.text(), text(), missing_ranks, last_calls);
  // A message has two ranks. If one of them is missing, only the other has waited.
  if (mark.collective == Collective::message) {
    waiting = {missing_ranks.front() == mark.to ? mark.from : mark.to};
  }
  return timeout_text(mark.text(), text(), timeout, waiting, missing_ranks, last_calls);
}

/// Compares the call of the rank that came last with that of the first.
void Meeting::check_same_call() {
  const TransportCall& latest = call_of(arrived_.back());
  const TransportCall& first = call_of(arrived_.front());
  if (latest.mark == first.mark && latest.moves == first.moves &&
      latest.row_elements == first.row_elements) {
    return;
  }
  fail_locked(different_calls_text(arrived_));
  throw Error(*failure_);
}

std::string Meeting::different_calls_text(std::span<const size_t> positions) const {
  const auto same_mark = [&](size_t position) {
    return call_of(position).mark == call_of(positions.front()).mark;
  };
  const bool same_marks = std::ranges::all_of(positions, same_mark);
  std::vector<std::string> calls;
  for (const size_t position : positions) {
    const TransportCall& call = call_of(position);
    std::string description =
        fmt::format("{} made {}", about_.text(ranks_[position]), call.mark.text());
    if (call.layout != nullptr) description += fmt::format(" ({})", call.layout->text());
    if (same_marks && call.row_elements > 0) {
      description += fmt::format(" in blocks of {} bytes", call.row_bytes());
    }
    if (same_marks && call.moves != call.mark.collective)
      description += " whose bytes devices move";
    calls.push_back(std::move(description));
  }
  return disagreement_text(text(), calls);
}

/// Checks, for each pair of ranks, that one receives as many rows as the other sends.
void Meeting::check_rows() {
  if (call_of(0).sent.empty()) return;  // the call is no all-to-all
  for (size_t from = 0; from < ranks_.size(); ++from) {
    for (size_t to = 0; to < ranks_.size(); ++to) {
      const int64_t sent = call_of(from).sent[to];
      const int64_t received = call_of(to).received[from];
      if (sent == received) continue;
      fail_locked(
          different_rows_text(call_of(0).mark, text(), ranks_[from], sent, ranks_[to], received));
      throw Error(*failure_);
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

void Meeting::throw_if_failed() const {
  const std::scoped_lock lock(mutex_);
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
