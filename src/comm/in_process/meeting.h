#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/fingerprint.h"
#include "comm/last_call.h"
#include "comm/transport.h"

namespace tessera {

class MeetingPost;

/// The meeting point of the ranks of one group, which are threads of one process. A *position* is
/// an index in the group. Any thread may call any function. Threads sleep while they wait.
///
/// In a collective, a rank calls enter(), reads the memory of the other ranks (call_of()), and
/// calls leave(). The other ranks may read the operands of its call until all ranks have left it.
/// It posts messages by post(), and waits for them by wait(). The first error breaks the group:
/// enter(), post() and wait() throw it from then on.
class Meeting {
 public:
  /// The functions by which a meeting asks the World about a rank.
  struct AboutRanks {
    std::function<std::string(int rank)> text;  ///< returns the rank's name in messages
    /// Returns what each of some ranks did last in any group. The meeting calls it without its
    /// lock.
    std::function<std::vector<std::string>(std::span<const int> ranks)> describe;
    /// Returns the longest time that the rank waits for others.
    std::function<std::chrono::milliseconds(int rank)> timeout;
  };

  Meeting(std::vector<int> ranks, std::string lane, AboutRanks about);

  std::span<const int> ranks() const { return ranks_; }
  const std::string& lane() const { return lane_; }
  std::string text() const { return group_text(ranks_, lane_); }

  /// Begins a collective: waits until all ranks have entered it. Throws Error if the ranks do not
  /// make the same call, if a rank has ended or does not come in time, or if the group is broken.
  /// Also throws if a rank waits for a message that a rank which has entered did not post, because
  /// neither call would end.
  void enter(size_t position, const TransportCall& call);
  /// Waits within a collective until all ranks have called synchronize(). It has no timeout and
  /// does not throw, because no rank's memory may be freed while another rank reads it. The wait
  /// ends, because a rank that has entered always leaves.
  void synchronize();
  /// Waits as synchronize() does, and then ends the collective.
  void leave(size_t position);
  /// Returns the call of the rank at a position, between enter() and leave().
  const TransportCall& call_of(size_t position) const { return *calls_[position]; }

  /// Posts a message. Refers to `post` until withdraw(). If the other rank has posted another
  /// message in its place, breaks the group.
  void post(MeetingPost& post);
  /// Waits until messages that the rank at a position has posted have moved. Throws as enter()
  /// does.
  void wait(size_t position, std::span<TransportPost* const> posts);
  /// Forgets a post. If its message has not moved, the other rank cannot end its wait for it. Waits
  /// for a rank that copies the message.
  void withdraw(MeetingPost& post);

  /// Breaks the group, if it is not broken yet: waiting and later calls throw Error with this text.
  void fail(const std::string& message);
  void throw_if_failed() const;
  /// Notes that the rank at a position makes no more calls. A call that waits for this rank, now or
  /// later, breaks the group.
  void end(size_t position);
  LastCall last_call(size_t position) const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// The messages from one position to another that one of the two ranks has posted.
  struct Channel {
    bool sent = false;                ///< whether that is the rank that sends
    std::vector<MeetingPost*> posts;  ///< in their order; null if the message was withdrawn
  };

  template <typename Condition, typename Needs>
  void wait_for(Lock& lock, size_t position, const Fingerprint& mark, Condition&& condition,
                Needs&& needs);
  void await_all(Lock& lock, size_t position, const TransportCall& call);
  // These two return the errors of call_errors.h for calls of this group.
  std::string missing_text(const Fingerprint& mark, std::span<const size_t> missing,
                           bool have_ended, std::chrono::milliseconds timeout) const;
  std::string different_calls_text(std::span<const size_t> positions) const;
  // The caller holds the lock, here and below.
  void fail_locked(const std::string& message);
  void wait_for_all(Lock& lock);
  void check_same_call();
  void check_rows();
  void check_messages(size_t in_collective, size_t in_wait);
  void await_post(Lock& lock, MeetingPost& post);
  void move_bytes(Lock& lock, MeetingPost& post);
  [[noreturn]] void throw_withdrawn(Lock& lock, const MeetingPost& post);
  Channel& channel_of(const MeetingPost& post);

  const std::vector<int> ranks_;
  const std::string lane_;
  const AboutRanks about_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> failure_;       // the error that broke the group
  std::vector<const TransportCall*> calls_;  // by position
  std::vector<size_t> arrived_;  // positions that wait in enter(), in the order of arrival
  size_t waiting_ = 0;           // the number of ranks that wait in synchronize()
  uint64_t begun_calls_ = 0;     // the number of collectives that all have entered
  uint64_t barriers_ = 0;    // the number of times that all have called synchronize() or leave()
  std::vector<bool> ended_;  // by position: end() was called
  std::vector<std::span<TransportPost* const>> awaited_;  // by position, of the ranks in wait()
  std::vector<CallRecord> last_calls_;                    // by position
  std::vector<Channel> channels_;                         // from * ranks + to
};

/// A message that a rank has posted in a meeting. The meeting's lock guards the private members.
class MeetingPost final : public TransportPost {
 public:
  /// Creates the post of the rank at `position`, for Meeting::post().
  MeetingPost(std::shared_ptr<Meeting> meeting, size_t position, const MarkedMessage& message,
              bool sent)
      : TransportPost(message, sent), meeting_(std::move(meeting)), position_(position) {}
  ~MeetingPost() override { meeting_->withdraw(*this); }

 private:
  friend class Meeting;

  enum class State : uint8_t {
    none,      ///< not posted
    posted,    ///< the other rank has not posted the message
    matched,   ///< both ranks have posted it
    copying,   ///< one of them copies its bytes
    moved,     ///< the bytes are there
    forsaken,  ///< the other rank has withdrawn it
  };

  std::shared_ptr<Meeting> meeting_;
  size_t position_;
  State state_ = State::none;
  MeetingPost* other_ = nullptr;  // of the other rank, if matched or copying
};

/// Waits, as the rank at `position`, until the condition holds. Throws if the group breaks before.
/// `needs(other)` says whether the wait still depends on the rank at position `other`. If such
/// ranks have ended, or the timeout is over, breaks the group with an error that names them.
template <typename Condition, typename Needs>
void Meeting::wait_for(Lock& lock, size_t position, const Fingerprint& mark, Condition&& condition,
                       Needs&& needs) {
  const std::chrono::milliseconds timeout = about_.timeout(ranks_[position]);
  const auto needs_ended = [&](size_t other) { return ended_[other] && needs(other); };
  const auto is_over = [&] {
    if (condition() || failure_) return true;
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (needs_ended(other)) return true;
    }
    return false;
  };
  const bool in_time = changed_.wait_for(lock, timeout, is_over);
  if (condition()) return;
  if (!failure_) {
    std::vector<size_t> missing;
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (in_time ? needs_ended(other) : needs(other)) missing.push_back(other);
    }
    // Releases the lock: to say what a rank does, the text locks all meetings of the rank.
    lock.unlock();
    const std::string message = missing_text(mark, missing, /*have_ended=*/in_time, timeout);
    lock.lock();
    if (condition()) return;
    if (!failure_) fail_locked(message);
  }
  throw Error(*failure_);
}

/// Returns the transport of the rank at a position of a meeting, among ranks that are
/// threads of one process. The ranks read each other's tensors, which are in the processor's
/// memory. Each rank copies or sums its own results. In an all-reduce each rank sums one slice, and
/// copies the other slices from the ranks that summed them. The destructor calls `leave`.
std::unique_ptr<Transport> in_process_transport(std::shared_ptr<Meeting> meeting, int position,
                                                std::function<void()> leave);

}  // namespace tessera
