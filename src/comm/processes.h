#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/core_place.h"
#include "comm/wait_time.h"

namespace tessera {

/// Where a rank runs.
struct RankPlace {
  std::string machine;
  CorePlace cores = {};  ///< the parts of the machine that have all of the rank's cores
};

/// The processes of a run, each of which is one rank, on one or several machines. A launcher
/// (mpirun, srun) or the user has started them. World has this role for ranks that are threads of
/// one process; its rules for groups and lanes hold here too. Any thread may call any function.
class Processes {
 public:
  Processes() = default;
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  virtual int rank() const = 0;
  int ranks() const { return static_cast<int>(hosts().size()); }
  /// Returns the name of each rank's machine.
  virtual std::span<const std::string> hosts() const = 0;
  /// Returns the ranks on this rank's machine, including itself, in ascending order.
  std::vector<int> ranks_here() const;
  /// Returns where each rank runs. All ranks call it together, once, because the ranks tell each
  /// other.
  virtual std::vector<RankPlace> places();
  /// Returns the rank with its machine, for messages: "rank 3 (node1)".
  std::string text(int rank) const;

  /// Sets the time that a call waits for other ranks from now on.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual std::chrono::milliseconds timeout() const = 0;

  /// Lets the ranks compare each call of all groups, whatever Transport::compare_calls() says
  /// (run.check_calls). All ranks call it with the same value.
  void check_calls(bool each) { checks_calls_ = each; }
  bool checks_calls() const { return checks_calls_; }

  /// Returns this rank's communicator in a group: an ordered list of ranks, one of which is this
  /// rank. All ranks of the group ask for it with the same list, and each waits for the others.
  /// Throws Error that names ranks which list the group in another order or do not come in time.
  Communicator group(std::span<const int> ranks, std::string_view lane);
  /// Returns what group() does, as a Transport alone. The Transport's destructor leaves the group.
  virtual std::unique_ptr<Transport> transport(std::span<const int> ranks,
                                               std::string_view lane) = 0;

  /// Ends the calls of all ranks on all lanes but kControlLane, as World::end_work() does.
  virtual void end_work(std::string_view why) = 0;

  /// The errors that this rank is to print.
  enum class Report {
    none,     ///< no error: there is none, or another rank prints it
    own,      ///< its own error
    for_all,  ///< the error that all ranks have; this is the first rank
  };
  /// Notes that the work of this rank has ended, by this error, or without one if the text is
  /// empty. Waits for the other ranks to end, for `patience` at most. Returns which error this rank
  /// is to print: if another rank caused the error and still answers, that rank prints it. Every
  /// rank calls this before the object is destroyed.
  virtual Report report_end(std::string_view error, std::chrono::milliseconds patience) = 0;
  /// Returns, after report_end(), whether all ranks have ended. If not, the caller calls abort().
  virtual bool all_ended() const = 0;

  /// Ends all processes of the run at once, this process with `status`. After report_end(), one
  /// rank prints which ranks have not ended, unless an error already says so.
  [[noreturn]] virtual void abort(int status) = 0;

 private:
  std::atomic<bool> checks_calls_ = false;
};

/// Joins the processes that were started together with this process, and returns them; null if it
/// was started alone. Throws Error if the processes cannot meet: this build has no MPI, or the
/// launcher works with another MPI, so that each process would train alone. If not all processes
/// come within `patience`, throws Error, or with MPI prints it and ends the process (MeetingWatch).
std::unique_ptr<Processes> join_processes(std::chrono::milliseconds patience = kRankTimeout);

}  // namespace tessera
