#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mpi.h>

#include "base/error.h"
#include "comm/last_call.h"
#include "comm/wait_time.h"

// The news of processes, and the waits of this transport, in which a process receives news.

namespace tessera {

/// The messages about themselves that the processes of a run send each other, apart from
/// collectives. A process tells that it has ended or cannot go on, and asks others in which calls
/// they wait. It receives news while it waits for others, and its watch thread (processes_mpi.cpp)
/// does four times a second. A process that does not answer is therefore stopped or gone.
///
/// Any thread may call any function.
class MpiNews {
 public:
  using Clock = std::chrono::steady_clock;

  /// The end of a rank's work, by this error, or without one if the text is empty.
  struct End {
    std::string error;
    bool is_cause = true;     ///< false if the rank failed because it heard of another rank's error
    Clock::time_point heard;  ///< when this process heard of the end
  };

  /// Creates the news of this process. `world` has all processes, and is used for nothing else.
  explicit MpiNews(MPI_Comm world);

  /// The last call of this rank in a group, about which others may ask.
  struct GroupCalls {
    std::string group;  ///< group_text()
    CallRecord last;
  };
  /// Adds a group. The pointer stays valid while this object lives.
  GroupCalls* add_group(std::string group);
  /// Calls change(calls.last) under the lock: CallRecord::begin(), end() or fail(). A rank that
  /// waits in a call may ask, and learns that this rank had reached the call before it failed.
  template <typename Change>
  void note(GroupCalls& calls, Change&& change) {
    const std::scoped_lock lock(mutex_);
    change(calls.last);
  }

  /// Tells all others that this rank cannot go on with the work of the programs.
  void tell_work_failed(std::string_view why);
  /// Tells all others that this rank makes no more calls.
  void tell_end(const End& end);

  /// Tells `ranks` that this rank has withdrawn a message in a group: group_text(), and the error.
  void tell_withdrawn(std::span<const int> ranks, std::string_view group, std::string_view why);

  /// Receives the messages that have come, and does all Work. Does not wait for another thread that
  /// does the same.
  void listen();

  /// Work that goes on while the process waits: listen() does it, on any thread, on one at a time.
  /// It may not wait, listen or throw.
  class Work {
   public:
    Work(MpiNews& news, std::function<void()> work);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    friend class MpiNews;
    MpiNews& news_;
    std::function<void()> work_;
  };
  /// Returns why calls on a lane cannot end; none if they can. The reason is that the work of a
  /// rank failed, or that another rank ended by an error of its own more than kEndGrace ago. Work
  /// that failed does not end calls on kControlLane, on which the ranks agree what to do.
  std::optional<std::string> failure(std::string_view lane);
  /// Returns the error of messages of a group, because `rank` has withdrawn one of them more than
  /// kEndGrace ago; none if it has not.
  std::optional<std::string> withdrawn(int rank, const std::string& group);
  /// Returns whether this rank has heard of this error from another rank.
  bool has_heard(std::string_view error);
  /// Returns the ends of ranks, by rank: those that were heard, and this rank's own.
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
  /// A message that MPI sends.
  struct Sent {
    std::string bytes;
    MPI_Request request;
  };

  void receive_messages();
  void do_works();
  std::optional<std::string> failure_of_other() const;
  void tell(int rank, int kind, std::string_view text);
  void tell_all(int kind, std::string_view text);
  void handle(int from, int kind, const std::string& text);
  Answer own_answer() const;

  MPI_Comm world_;
  int rank_;
  int ranks_;
  std::mutex asking_;  // one thread asks at a time
  std::mutex mutex_;   // guards what follows
  std::list<GroupCalls> groups_;
  std::list<Sent> sent_;  // kept while MPI reads the bytes
  std::optional<std::string> work_failure_;
  std::map<int, End> ends_;
  std::map<std::pair<int, std::string>, End> withdrawn_;  // by rank and group
  int64_t question_ = 0;           // the number of the last question of ask()
  std::map<int, Answer> answers_;  // to that question
  std::mutex works_mutex_;         // guards what follows; held while work is done
  std::vector<const Work*> works_;
};

/// The waits between polls, so that polling does not keep a core from other threads for long.
class Backoff {
 public:
  enum class Between : uint8_t {
    yields,  ///< only lets other threads run: MPI moves data only while this thread polls
    sleeps,  ///< yields for 2 ms and then sleeps: the wait may take long
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
/// end. Calls `look(waited)` after each poll; it throws Error to give up. The first `brief_polls`
/// polls only call `is_done()`: most waits end within these microseconds.
template <typename Done, typename Look>
void wait_until(Done&& is_done, int brief_polls, MpiNews& news, std::string_view lane, Look&& look,
                Backoff::Between between = Backoff::Between::sleeps) {
  for (int polls = 0; polls < brief_polls; ++polls) {
    if (is_done()) return;
  }
  for (Backoff backoff(between); !is_done(); backoff.wait()) {
    news.listen();
    if (const auto failure = news.failure(lane)) throw Error("{}", *failure);
    look(backoff.waited());
  }
}

/// Waits for messages of MPI as wait_until() does. Before it throws, it cancels the messages that
/// are not done, so that MPI does not use their memory any more.
template <typename Look>
void wait_for_messages(std::span<MPI_Request> requests, MpiNews& news, std::string_view lane,
                       Look&& look, Backoff::Between between = Backoff::Between::sleeps) {
  const int brief_polls = between == Backoff::Between::yields ? 400 : 64;  // calls of MPI_Testall
  try {
    wait_until([&] { return are_done(requests); }, brief_polls, news, lane, look, between);
  } catch (...) {
    cancel(requests);
    throw;
  }
}

}  // namespace tessera
