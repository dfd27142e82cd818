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

/// All ranks may end one after the other for the same reason. For this long, nobody takes offence.
inline constexpr std::chrono::milliseconds kEndMoment{500};

/// What the processes of a run tell each other beside their collectives: that one ended or cannot
/// go on, and which calls it waits in. A process listens while it waits for others, and a thread of
/// it does now and then. So one that does not answer is stopped or gone: that is how it is found.
///
/// Any thread may call any function.
class MpiNews {
 public:
  using Clock = std::chrono::steady_clock;

  /// How a rank's work ended: with this error, or an empty text.
  struct End {
    std::string error;
    bool cause = true;  ///< whether the error is the rank's own, not another's that it heard of
    Clock::time_point heard;
  };

  /// `world` has all processes, and is for the news alone.
  explicit MpiNews(MPI_Comm world);

  /// The last call of this rank in a group, which others may ask for. The pointer stays valid.
  struct GroupCalls {
    std::string group;  // group_text()
    CallRecord last;
  };
  GroupCalls* add_group(std::string group);
  void begin_call(GroupCalls& calls, const Fingerprint& mark);
  void end_call(GroupCalls& calls);
  /// The call failed. Others that still wait in it may ask, and hear that this rank was there.
  void fail_call(GroupCalls& calls);

  /// Tells all others that this rank cannot go on with the work of the programs.
  void tell_work_failed(std::string_view why);
  /// Tells all others that this rank makes no more calls.
  void tell_end(const End& end);

  /// Takes what has come from others.
  void listen();
  /// Why calls on a lane cannot end, from what was heard: that the work of a rank failed, or that
  /// it ended by an error a moment ago. All ranks may end by the same error one after the other,
  /// and the moment lets them.
  std::optional<std::string> failure(std::string_view lane);
  /// Whether an error is what this rank has heard of another.
  bool heard(std::string_view error);
  /// The ends that were heard, by rank; this rank's own too.
  std::map<int, End> ends();

  /// Asks other ranks what they do. Returns what those said that answered in time.
  struct Answer {
    std::string text;  // calls_text()
    /// LastCall::with_group() of the calls that it waits in, and of those that it gave up: there it
    /// was as well.
    std::vector<std::string> came_to;
  };
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
  int rank_ = 0;
  int ranks_ = 1;
  std::mutex asking_;  // one thread asks at a time
  std::mutex mutex_;   // of what follows
  std::list<GroupCalls> groups_;
  std::list<Sent> sent_;  // kept while MPI reads them
  std::optional<std::string> work_failure_;
  std::map<int, End> ends_;
  std::map<int, Answer> answers_;
};

/// Waits between looks at something, without taking a core from others for long.
class Patience {
 public:
  /// What it does between looks.
  enum class Between : uint8_t {
    yields,  ///< for what comes as fast as this thread looks: data that MPI moves in parts
    sleeps,  ///< after a while, for what may take long
  };
  explicit Patience(Between between = Between::sleeps) : between_(between) {}

  void wait();
  std::chrono::nanoseconds waited() const { return MpiNews::Clock::now() - begun_; }

 private:
  Between between_;
  MpiNews::Clock::time_point begun_ = MpiNews::Clock::now();
};

/// Whether requests of MPI are done.
bool are_done(std::span<MPI_Request> requests);

/// Cancels messages, and forgets them.
void take_back(std::span<MPI_Request> messages);

/// Waits until `is_done()`, and listens to the news meanwhile. Throws Error if calls on the lane
/// cannot end. `look(waited)` is called now and then, and throws Error to give up.
/// Before that it looks `brief_looks` times, for some microseconds.
template <typename Done, typename Look>
void wait_until(Done&& is_done, int brief_looks, MpiNews& news, std::string_view lane, Look&& look,
                Patience::Between between = Patience::Between::sleeps) {
  for (int looks = 0; looks < brief_looks; ++looks) {
    if (is_done()) return;
  }
  for (Patience waiting(between); !is_done(); waiting.wait()) {
    news.listen();
    if (const auto failure = news.failure(lane)) throw Error("{}", *failure);
    look(waiting.waited());
  }
}

/// The same for messages of MPI: those that are not done are taken back if it throws, so that MPI
/// does not use their memory any more.
template <typename Look>
void wait_for_messages(std::span<MPI_Request> requests, MpiNews& news, std::string_view lane,
                       Look&& look, Patience::Between between = Patience::Between::sleeps) {
  const int brief_looks = between == Patience::Between::yields ? 400 : 64;
  try {
    wait_until([&] { return are_done(requests); }, brief_looks, news, lane, look, between);
  } catch (...) {
    take_back(requests);
    throw;
  }
}

}  // namespace tessera
