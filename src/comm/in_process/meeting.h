#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/call_errors.h"
#include "comm/fingerprint.h"
#include "comm/last_call.h"
#include "comm/piece_layout.h"
#include "comm/transport.h"

namespace tessera {

/// A rank's part in a call: its fingerprint, and memory that the others may read until all of them
/// have left.
struct Visit {
  const Fingerprint* mark = nullptr;
  /// The kind of movement of the memory; a barrier if nothing moves, even if the fingerprint is of
  /// another call.
  Collective moves = Collective::barrier;
  const PieceLayout* layout = nullptr;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::span<const int64_t> sent{};      ///< rows, by position
  std::span<const int64_t> received{};  ///< rows, by position
  int64_t block_bytes = 0;              ///< of a row, or of a block from one rank to another
};

/// The meeting point of the ranks of one group, which are threads of one process. A *position* is
/// an index in the group. Waiting threads sleep.
class Meeting {
 public:
  /// The functions by which a meeting asks its world about a rank.
  struct AboutRanks {
    std::function<std::string(int rank)> text;  ///< its name in messages
    /// Returns what the rank did last in any group. Is called without any lock of the meeting.
    std::function<std::string(int rank)> describe;
    std::function<std::chrono::milliseconds(int rank)> timeout;  ///< the most it waits for others
  };

  Meeting(std::vector<int> ranks, std::string lane, AboutRanks about);

  std::span<const int> ranks() const { return ranks_; }
  const std::string& lane() const { return lane_; }
  /// Returns group_text().
  std::string text() const { return group_text(ranks_, lane_); }

  /// Shows this rank's visit to the others, and waits until all ranks are there. Throws Error if
  /// the ranks do not make the same call, if one waits in exchange() for a message to or from a
  /// rank that is here, if one has ended or does not come in time, or if the group is broken.
  void enter(size_t position, const Visit& visit);
  /// Waits for all ranks, which have all entered. Does not throw: a rank that has entered always
  /// leaves, so that no rank's memory is freed while another reads it.
  void together();
  /// Waits for all ranks, and then ends the call.
  void leave(size_t position);
  /// Returns the visit of the rank at a position; valid between enter() and leave().
  const Visit& visit(size_t position) const { return visits_[position]; }

  /// Sends messages to others and receives theirs. Returns the bytes of those from other positions.
  /// Throws Error as enter() does.
  int64_t exchange(size_t position, std::span<const MarkedMessage> sends,
                   std::span<const MarkedMessage> receives);

  /// Breaks the group, unless it is broken: waiting calls and all later ones throw Error of this
  /// text.
  void fail(const std::string& message);
  /// Throws Error if the group is broken.
  void require_whole() const;
  /// Notes that the rank at a position makes no more calls. Calls that wait for it, and later ones
  /// that need it, break the group.
  void end(size_t position);
  /// Returns the last call of the rank at a position in this group.
  LastCall last_call(size_t position) const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A message on its way from one position to another.
  struct Channel {
    enum class State : uint8_t { empty, offered, taken };
    State state = State::empty;
    const MarkedMessage* message = nullptr;
  };

  /// The messages of a rank in exchange() that are not done yet.
  struct Exchange {
    std::span<const MarkedMessage> sends;
    std::span<const MarkedMessage> receives;
  };

  template <typename Condition, typename Misses>
  void wait_for(Lock& lock, size_t position, const Fingerprint& mark, Condition&& condition,
                Misses&& misses);
  template <typename Misses>
  std::vector<size_t> missing(Misses&& misses) const;
  void await_all(Lock& lock, size_t position, const Visit& visit);
  bool waits_in_collective(size_t position) const;
  std::string missing_text(const Fingerprint& mark, std::span<const size_t> missing,
                           std::chrono::milliseconds timeout) const;
  std::string gone_text(const Fingerprint& mark, std::span<const size_t> ended) const;
  std::string calls_of(std::span<const size_t> positions) const;
  void fail_locked(const std::string& message);
  void throw_if_broken() const;
  void wait_for_all(Lock& lock);
  void check_same();
  void check_rows();
  void check_messages(size_t in_collective, size_t in_exchange);
  void take(Lock& lock, size_t position, const MarkedMessage& message);
  void take_back(Lock& lock, size_t position, std::span<const MarkedMessage> sends);
  Channel& channel(size_t from, size_t to) { return channels_[from * ranks_.size() + to]; }

  const std::vector<int> ranks_;
  const std::string lane_;
  const AboutRanks about_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> failure_;
  std::vector<Visit> visits_;    // by position
  std::vector<size_t> arrived_;  // positions that wait in enter(), in the order in which they came
  size_t waiting_ = 0;           // the number of ranks that wait in together()
  uint64_t entries_ = 0;         // the number of times that all have entered
  uint64_t turns_ = 0;           // the number of times that all were together
  std::vector<bool> ended_;      // by position
  std::vector<Exchange> exchanges_;     // by position, of the ranks in exchange()
  std::vector<CallRecord> last_calls_;  // by position
  std::vector<Channel> channels_;       // from * ranks + to
};

/// Waits, as the rank at `position`, until the condition holds. Throws if the group breaks before.
/// Breaks the group, with an error that names them, if one of the positions for which `misses` is
/// true has ended, or after the rank's timeout.
template <typename Condition, typename Misses>
void Meeting::wait_for(Lock& lock, size_t position, const Fingerprint& mark, Condition&& condition,
                       Misses&& misses) {
  const std::chrono::milliseconds timeout = about_.timeout(ranks_[position]);
  const auto misses_ended = [&](size_t other) { return ended_[other] && misses(other); };
  const auto over = [&] {
    if (condition() || failure_) return true;
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (misses_ended(other)) return true;
    }
    return false;
  };
  const bool in_time = changed_.wait_for(lock, timeout, over);
  if (condition()) return;
  if (!failure_) {
    const std::vector<size_t> positions = in_time ? missing(misses_ended) : missing(misses);
    lock.unlock();
    const std::string message =
        in_time ? gone_text(mark, positions) : missing_text(mark, positions, timeout);
    lock.lock();
    if (condition()) return;
    if (!failure_) fail_locked(message);
  }
  throw_if_broken();
}

template <typename Misses>
std::vector<size_t> Meeting::missing(Misses&& misses) const {
  std::vector<size_t> positions;
  for (size_t position = 0; position < ranks_.size(); ++position) {
    if (misses(position)) positions.push_back(position);
  }
  return positions;
}

}  // namespace tessera
