#pragma once

#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "base/error.h"
#include "comm/last_call.h"

namespace tessera {

/// The time after which the end of a rank makes calls of others fail. All ranks may end for the
/// same reason, one shortly after the other. This time lets each report its own error.
inline constexpr std::chrono::milliseconds kEndMoment{500};

/// The messages about their state that the processes of a run send each other, apart from
/// collectives: one has ended, one cannot go on, or one asks which calls another waits in. A
/// process receives them while it waits for others, and its watch thread (processes_mpi.cpp) does
/// so four times a second. So a process that does not answer is stopped or gone.
///
/// Any thread may call any function.
class MpiNews {
 public:
  using Clock = std::chrono::steady_clock;

  /// The end of a rank's work, by this error, or without one if the text is empty.
  struct End {
    std::string error;
    bool cause = true;  ///< true if the error is the rank's own, not one heard of another
    Clock::time_point heard;
  };

  /// Creates the news of this process. `world` has all processes, and is for the news alone.
  explicit MpiNews(MPI_Comm world);

  /// The last call of this rank in a group, about which others may ask.
  struct GroupCalls {
    std::string group;  ///< group_text()
    CallRecord last;
  };
  /// Adds a group. The pointer stays valid.
  GroupCalls* add_group(std::string group);
  void begin_call(GroupCalls& calls, const Fingerprint& mark);
  void end_call(GroupCalls& calls);
  /// Notes that the call failed. Ranks that still wait in it may ask, and learn that this rank was
  /// there.
  void fail_call(GroupCalls& calls);

  /// Tells all others that this rank cannot go on with the work of the programs.
  void tell_work_failed(std::string_view why);
  /// Tells all others that this rank makes no more calls.
  void tell_end(const End& end);

  /// Receives the messages that have come. Does nothing if another thread is doing so.
  void listen();
  /// Returns why calls on a lane cannot end, from what was heard: the work of a rank failed, or a
  /// rank ended by an error more than kEndMoment ago.
  std::optional<std::string> failure(std::string_view lane);
  /// Returns whether an error is one of another rank, of which this rank has heard.
  bool heard(std::string_view error);
  /// Returns the ends that were heard, by rank, and this rank's own.
  std::map<int, End> ends();

  /// The answer of a rank that is asked what it does.
  struct Answer {
    std::string text;  ///< calls_text()
    /// LastCall::with_group() of the calls that the rank waits in, and of those that it gave up.
    std::vector<std::string> came_to;
  };
  /// Asks other ranks what they do. Returns the answers that came in time, by rank.
  std::map<int, Answer> ask(std::span<const int> ranks, std::chrono::milliseconds patience);

 private:
  struct Sent {
    std::string bytes;
    MPI_Request request;
  };

  std::optional<std::string> failure_of_other() const;
  void tell(int rank, int kind, std::string_view text);
  void tell_all(int kind, std::string_view text);
  void take(int from, int kind, const std::string& text);
  Answer own_answer() const;
  bool listen_once();

  MPI_Comm world_;
  int rank_;
  int ranks_;
  std::mutex asking_;  // one thread asks at a time
  std::mutex mutex_;   // guards what follows
  std::list<GroupCalls> groups_;
  std::list<Sent> sent_;  // kept while MPI reads them
  std::optional<std::string> work_failure_;
  std::map<int, End> ends_;
  std::map<int, Answer> answers_;
};

/// Waits between two polls, without taking a core from other threads for long.
class Backoff {
 public:
  enum class Between : uint8_t {
    yields,  ///< lets other threads run: for data that MPI moves only while this thread polls
    sleeps,  ///< yields for 2 ms and sleeps after that: for what may take long
  };
  explicit Backoff(Between between = Between::sleeps) : between_(between) {}

  void wait();
  /// Returns the time since this object was made.
  std::chrono::nanoseconds waited() const { return MpiNews::Clock::now() - begun_; }

 private:
  Between between_;
  MpiNews::Clock::time_point begun_ = MpiNews::Clock::now();
};

/// Returns whether requests of MPI are done.
bool are_done(std::span<MPI_Request> requests);

/// Cancels the messages that are not done, and frees their requests.
void cancel(std::span<MPI_Request> messages);

/// Waits until `is_done()`, and receives news meanwhile. Throws Error if calls on the lane cannot
/// end. `look(waited)` is called after each poll, and throws Error to give up. The first
/// `brief_looks` polls do neither: most waits end within these microseconds.
template <typename Done, typename Look>
void wait_until(Done&& is_done, int brief_looks, MpiNews& news, std::string_view lane, Look&& look,
                Backoff::Between between = Backoff::Between::sleeps) {
  for (int looks = 0; looks < brief_looks; ++looks) {
    if (is_done()) return;
  }
  for (Backoff backoff(between); !is_done(); backoff.wait()) {
    news.listen();
    if (const auto failure = news.failure(lane)) throw Error("{}", *failure);
    look(backoff.waited());
  }
}

/// Waits for messages of MPI as wait_until() does. If it throws, it cancels those that are not
/// done, so that MPI does not use their memory any more.
template <typename Look>
void wait_for_messages(std::span<MPI_Request> requests, MpiNews& news, std::string_view lane,
                       Look&& look, Backoff::Between between = Backoff::Between::sleeps) {
  const int brief_looks = between == Backoff::Between::yields ? 400 : 64;  // calls of MPI_Testall
  try {
    wait_until([&] { return are_done(requests); }, brief_looks, news, lane, look, between);
  } catch (...) {
    cancel(requests);
    throw;
  }
}

}  // namespace tessera
