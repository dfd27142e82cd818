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
#include "comm/call_errors.h"
#include "comm/launch.h"
#include "comm/mpi/join_by_mpi.h"
#include "comm/mpi/make_group_mpi.h"
#include "comm/mpi/meeting_watch_mpi.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/mpi/mpi_transport_mpi.h"
#include "comm/processes.h"
#include "comm/wait_time.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kWatchPeriod{250};  // between two polls of the watch thread
/// The time that the rank which reports an error has to print it, before other ranks end the run.
constexpr std::chrono::seconds kTimeToReport{5};

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
/// with a timeout, and then call MPI together: make_group() does so before MPI makes a
/// communicator, MpiGroup::meet() before a collective. If a rank stops while others are in a
/// collective, the watch thread ends the run. MeetingWatch guards MPI's start and end.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses() : world_(copy_of_world()), news_(copy_of_world()), rank_(position_in(world_)) {
    // All processes must have the names of all machines, for messages and ranks_here().
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    const int ranks = ranks_of(world_);
    std::vector<char> names(static_cast<size_t>(ranks) * name.size());
    check_mpi(MPI_Allgather(name.data(), name.size(), MPI_CHAR, names.data(), name.size(), MPI_CHAR,
                            world_),
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
    MPI_Comm data = make_group(ranks, lane, *this, news_, world_);
    MPI_Comm marks = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(data, &marks), "MPI_Comm_dup");
    const std::vector<int> members(ranks.begin(), ranks.end());
    const auto position = static_cast<int>(own - ranks.begin());
    std::list<MpiGroup> new_group;  // made without the lock: its constructor waits for others
    new_group.emplace_back(data, marks, members, std::string(lane), *this, news_);
    const std::scoped_lock lock(mutex_);
    groups_.splice(groups_.end(), new_group);
    return {mpi_transport(groups_.back(), news_), members, position};
  }

  void end_work(std::string_view why) override { news_.tell_work_failed(why); }

  Report report_end(std::string_view error, std::chrono::milliseconds patience) override;
  bool all_ended() const override { return all_ended_; }

  [[noreturn]] void abort(int status) override {
    if (!missing_errors_.empty()) print_error(fmt::format("{}", fmt::join(missing_errors_, "; ")));
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();  // not reached, but MPI does not declare MPI_Abort() as [[noreturn]]
  }

 private:
  static void print_error(std::string_view error);
  void watch(const std::stop_token& stop);
  [[noreturn]] void end_stuck(const MpiGroup::Stuck& stuck);

  MPI_Comm world_;  // all processes, for make_group()
  MpiNews news_;
  int rank_;
  bool all_ended_ = false;
  std::vector<std::string> missing_errors_;  // errors of ranks that have not ended, for abort()
  std::vector<std::string> hosts_;
  std::atomic<std::chrono::milliseconds> timeout_{kRankTimeout};
  std::mutex mutex_;  // guards groups_
  std::list<MpiGroup> groups_;
  std::jthread watch_;
};

Processes::Report MpiProcesses::report_end(std::string_view error,
                                           std::chrono::milliseconds patience) {
  // If this rank has heard of the error from another rank, that rank is the cause and reports it.
  const bool is_cause = !news_.has_heard(error);
  news_.tell_end({std::string(error), is_cause, MpiNews::Clock::now()});
  for (Backoff backoff; backoff.waited() < patience; backoff.wait()) {
    news_.listen();
    if (std::ssize(news_.ends()) == ranks()) break;
  }
  const auto ends = news_.ends();  // a copy: all decisions below are about the same ends
  all_ended_ = std::ssize(ends) == ranks();
  const auto has_failed = [](const auto& end) { return !end.second.error.empty(); };
  // If no rank has failed, the lowest that has ended notes errors about the others, for abort().
  if (std::ranges::none_of(ends, has_failed) && ends.begin()->first == rank_) {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!ends.contains(rank)) missing_errors_.push_back(end_timeout_text(text(rank), patience));
    }
  }
  if (error.empty()) return Report::none;
  const auto has_this_error = [&](const auto& end) { return end.second.error == error; };
  if (all_ended_ && std::ranges::all_of(ends, has_this_error)) {
    return rank_ == 0 ? Report::for_all : Report::none;
  }
  const auto is_a_cause = [&](const auto& end) { return end.second.is_cause && has_failed(end); };
  return is_cause || std::ranges::none_of(ends, is_a_cause) ? Report::own : Report::none;
}

void MpiProcesses::print_error(std::string_view error) {
  fmt::print(stderr, "tessera: error: {}\n", error);
  std::fflush(stderr);
}

/// Receives news while this rank computes, so that it answers others. Ends the run if a collective
/// of MPI is stuck. Runs on the watch thread, until `stop`.
void MpiProcesses::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  while (!woken.wait_for(lock, stop, kWatchPeriod, [&] { return stop.stop_requested(); })) {
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

/// Ends the run. The thread that waits in MPI cannot throw its error, so this thread prints it, on
/// one of the ranks that wait in the collective. The other ranks first give that rank time.
void MpiProcesses::end_stuck(const MpiGroup::Stuck& stuck) {
  if (stuck.reporter == rank_) {
    print_error(fmt::format("{}: {}", text(rank_), stuck.error));
  } else {
    std::this_thread::sleep_for(kTimeToReport);
  }
  abort(1);
}

/// Initializes MPI for calls by several threads. Throws Error if this MPI does not support them.
void initialize_mpi() {
  // By default, a rank that waits keeps a core from the threads that compute. If there are more
  // ranks than cores, a step then takes twenty times as long. Values that the user has set stay.
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
  const int processes = ranks_of(MPI_COMM_WORLD);
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
