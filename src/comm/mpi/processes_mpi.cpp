#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/call_errors.h"
#include "comm/launch.h"
#include "comm/mpi/join_by_mpi.h"
#include "comm/mpi/meeting_watch_mpi.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/mpi/mpi_transport_mpi.h"
#include "comm/processes.h"
#include "comm/wait_time.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{250};   // between two polls of the watch thread
constexpr std::chrono::seconds kSpeakersTime{5};  // head start of the rank that reports an error

/// Returns a new communicator of all processes. Its calls return errors.
MPI_Comm copy_of_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

/// The processes of a run, joined by MPI.
///
/// MPI waits for ever for a rank that does not come. So ranks first wait for each other by polling,
/// with a timeout, and only then call MPI together: gather_members() comes before MPI makes a
/// group, MpiGroup::meet() before a collective. Still, a rank may stop while others are in a
/// collective. A watch thread finds that and ends the run. MeetingWatch guards the start and the
/// end of MPI.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses() : invitations_(copy_of_world()), news_(copy_of_world()) {
    check_mpi(MPI_Comm_rank(invitations_, &rank_), "MPI_Comm_rank");
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    int ranks = 0;
    check_mpi(MPI_Comm_size(invitations_, &ranks), "MPI_Comm_size");
    std::vector<char> names(static_cast<size_t>(ranks) * name.size());
    check_mpi(MPI_Allgather(name.data(), name.size(), MPI_CHAR, names.data(), name.size(), MPI_CHAR,
                            invitations_),
              "MPI_Allgather");
    for (int rank = 0; rank < ranks; ++rank) {
      hosts_.emplace_back(names.data() + static_cast<size_t>(rank) * name.size());
    }
    watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  ~MpiProcesses() override {
    watch_.request_stop();
    watch_.join();
    const MeetingWatch end = watch_end(text(rank_), timeout_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  std::span<const std::string> hosts() const override { return hosts_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  Communicator group(std::span<const int> ranks, std::string_view lane) override {
    const auto own = std::ranges::find(ranks, rank_);
    TESSERA_CHECK(own != ranks.end(), "rank {} asks for the group [{}]", rank_,
                  fmt::join(ranks, ", "));
    const int tag = gather_members(ranks, lane);
    MPI_Comm data = make_group(ranks, tag);
    MPI_Comm marks = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(data, &marks), "MPI_Comm_dup");
    const std::vector<int> members(ranks.begin(), ranks.end());
    const auto position = static_cast<int>(own - ranks.begin());
    std::list<MpiGroup> made;  // made without the lock: its constructor waits for others
    made.emplace_back(data, marks, members, std::string(lane), *this, news_, timeout_);
    const std::scoped_lock lock(mutex_);
    groups_.splice(groups_.end(), made);
    return {mpi_transport(groups_.back()), members, position};
  }

  void end_work(std::string_view why) override { news_.tell_work_failed(why); }

  Report report_end(std::string_view error, std::chrono::milliseconds patience) override {
    const bool cause = !news_.heard(error);
    news_.tell_end({.error = std::string(error), .cause = cause, .heard = MpiNews::Clock::now()});
    for (Patience waiting; waiting.waited() < patience; waiting.wait()) {
      news_.listen();
      if (std::ssize(news_.ends()) == ranks()) break;
    }
    const auto ends = news_.ends();
    const auto same = [&](const auto& end) { return end.second.error == error; };
    all_ended_ = std::ssize(ends) == ranks();
    const auto failed = [](const auto& end) { return !end.second.error.empty(); };
    if (std::ranges::none_of(ends, failed) && ends.begin()->first == rank_) note_missing(patience);
    if (error.empty()) return Report::none;
    if (all_ended_ && std::ranges::all_of(ends, same)) {
      return rank_ == 0 ? Report::for_all : Report::none;
    }
    // An error of another rank is left to that rank, if its end was heard.
    const auto causes = [](const auto& end) {
      return end.second.cause && !end.second.error.empty();
    };
    return cause || std::ranges::none_of(ends, causes) ? Report::own : Report::none;
  }
  bool all_ended() const override { return all_ended_; }

  [[noreturn]] void abort(int status) override {
    if (!missing_.empty()) say_error(fmt::format("{}", fmt::join(missing_, "; ")));
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
  }

 private:
  /// Notes, for abort() to print, which ranks have not come to the end of a run without an error.
  /// Only the lowest rank that has come calls it, for all.
  void note_missing(std::chrono::milliseconds patience);
  static void say_error(std::string_view error);
  /// Waits until all members have asked for the group, in the same order, because MPI itself would
  /// wait for ever when it makes the group. Returns a tag for that. Throws Error if members list
  /// the ranks in another order, or do not ask within the timeout.
  int gather_members(std::span<const int> ranks, std::string_view lane);
  /// Answers other ranks while this one computes, and ends the run if a collective of MPI is stuck.
  /// Runs on the watch thread, until `stop`.
  void watch(const std::stop_token& stop);
  [[noreturn]] void end_stuck(const MpiGroup::Stuck& stuck);
  /// Makes MPI's communicator of these ranks. All of them call it, with the same tag.
  MPI_Comm make_group(std::span<const int> ranks, int tag);

  MPI_Comm invitations_;  // for gather_members() and make_group()
  MpiNews news_;
  int rank_ = 0;
  bool all_ended_ = false;
  std::vector<std::string> missing_;  // errors of ranks that have not ended, for abort()
  std::vector<std::string> hosts_;
  std::atomic<std::chrono::milliseconds> timeout_{kRankTimeout};
  std::mutex mutex_;  // guards groups_
  std::list<MpiGroup> groups_;
  std::jthread watch_;
};

void MpiProcesses::note_missing(std::chrono::milliseconds patience) {
  const auto ends = news_.ends();
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!ends.contains(rank)) missing_.push_back(not_ended_text(text(rank), patience));
  }
}

void MpiProcesses::say_error(std::string_view error) {
  fmt::print(stderr, "tessera: error: {}\n", error);
  std::fflush(stderr);
}

void MpiProcesses::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  while (!woken.wait_for(lock, stop, kLook, [&] { return stop.stop_requested(); })) {
    news_.listen();
    std::vector<MpiGroup*> groups;
    {
      const std::scoped_lock groups_lock(mutex_);
      for (MpiGroup& group : groups_) groups.push_back(&group);
    }
    for (MpiGroup* group : groups) {
      if (const auto stuck = group->stuck()) end_stuck(*stuck);
    }
  }
}

/// Ends the run. The thread that waits in MPI cannot throw its error, so this thread prints it: on
/// one rank, for all that wait in the same collective. The other ranks first give it time to do so.
void MpiProcesses::end_stuck(const MpiGroup::Stuck& stuck) {
  if (stuck.speaker == rank_) {
    say_error(fmt::format("{}: {}", text(rank_), stuck.error));
  } else {
    std::this_thread::sleep_for(kSpeakersTime);
  }
  abort(1);
}

int MpiProcesses::gather_members(std::span<const int> ranks, std::string_view lane) {
  std::vector<int> members(ranks.begin(), ranks.end());
  std::ranges::sort(members);
  // The tag separates groups that are made at the same time.
  const int tag = static_cast<int>(hash(std::as_bytes(std::span(members)), hash(lane)) % 30000);
  const uint64_t order = hash(std::as_bytes(ranks));
  std::vector<uint64_t> orders(ranks.size());
  std::vector<MPI_Request> messages(2 * ranks.size(), MPI_REQUEST_NULL);
  const auto receives = std::span(messages).first(ranks.size());
  const auto sends = std::span(messages).last(ranks.size());
  for (size_t at = 0; at < ranks.size(); ++at) {
    if (ranks[at] == rank_) continue;
    check_mpi(MPI_Irecv(&orders[at], 1, MPI_UINT64_T, ranks[at], tag, invitations_, &receives[at]),
              "MPI_Irecv");
    check_mpi(MPI_Isend(&order, 1, MPI_UINT64_T, ranks[at], tag, invitations_, &sends[at]),
              "MPI_Isend");
  }
  const std::string group = group_text(ranks, lane);
  wait_for_messages(messages, news_, lane, [&](auto waited) {
    if (waited < timeout_.load()) return;
    std::vector<std::string> missing;
    for (size_t at = 0; at < ranks.size(); ++at) {
      if (!are_done(receives.subspan(at, 1))) missing.push_back(text(ranks[at]));
    }
    throw Error("{}", not_asked_for_text(text(rank_), group, timeout_.load(), missing));
  });
  for (size_t at = 0; at < ranks.size(); ++at) {
    if (ranks[at] == rank_ || orders[at] == order) continue;
    throw Error(
        "{} asks for the {}, but {} asks for the same ranks in another order; all ranks of a group "
        "must list them in the same order",
        text(rank_), group, text(ranks[at]));
  }
  return tag;
}

MPI_Comm MpiProcesses::make_group(std::span<const int> ranks, int tag) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(invitations_, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(invitations_, members, tag, &made), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return made;
}

/// Initializes MPI for calls by several threads. Throws Error if it cannot do that. Only a program
/// that is one of several processes calls it.
void initialize_mpi() {
  // By default, a rank that waits keeps a core from the threads that compute. If there are more
  // ranks than cores, a step then takes twenty times as long. A value that the user has set stays.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
  // By default, Open MPI handles SIGSEGV, SIGBUS, SIGFPE and SIGABRT, and prints the stack. Its
  // handlers would overwrite the heap if they interrupt a kernel (see SignalThread). Without them
  // the system ends the process, and mpirun names the signal.
  ::setenv("OMPI_MCA_opal_signal", "", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided == MPI_THREAD_MULTIPLE) return;
  throw Error(
      "this MPI cannot be called by several threads (MPI_THREAD_MULTIPLE); build Tessera with one "
      "that can, such as Open MPI");
}

/// Throws Error if MPI does not find all processes that the launcher started.
void require_meeting(const Launch& launch) {
  int processes = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &processes), "MPI_Comm_size");
  if (processes == launch.processes) return;
  throw Error(
      "{} started {} processes, but this one finds {} of them by MPI: each would train alone. "
      "Start them by the mpirun of the MPI that Tessera was built with, or by srun with the "
      "interface that this MPI speaks (srun --mpi=list); or set {} to the first rank's machine and "
      "a port, by which they meet without MPI",
      launch.launcher, launch.processes, processes, kAddressVariable);
}

}  // namespace

std::unique_ptr<Processes> join_by_mpi(const Launch& launch, std::chrono::milliseconds patience) {
  const MeetingWatch start = watch_start(launch, patience);
  initialize_mpi();
  require_meeting(launch);
  return std::make_unique<MpiProcesses>();
}

}  // namespace tessera
