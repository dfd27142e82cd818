#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/wait_time.h"

namespace tessera {

/// The processes of a run, each of which is one rank. A launcher (mpirun, srun) started them, on
/// one or several machines. The rules of World, whose ranks are threads of one process, hold here
/// too: those of calls, their order and errors.
///
/// Any thread may call any function, except those that say that all ranks call them.
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
  /// Returns the rank with its machine, for messages: "rank 3 (node1)".
  std::string text(int rank) const;

  /// Sets the time that a call waits for other ranks from now on.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Returns the time that a call waits for other ranks.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// Returns this rank's communicator in a group: an ordered list of ranks with this one among
  /// them. All ranks of the group ask for it with the same list, and each waits for the others.
  /// Throws Error that names the ranks that ask for another order, or those that do not come in
  /// time.
  virtual Communicator group(std::span<const int> ranks, std::string_view lane) = 0;

  /// Ends the calls of all ranks on all lanes but kControlLane, as World::end_work() does.
  virtual void end_work(std::string_view why) = 0;

  /// The rank that reports an error.
  enum class Report {
    none,     ///< another rank, or there is no error
    own,      ///< this rank, whose error it is
    for_all,  ///< this rank, the first, and the error is that of all
  };
  /// Notes that the work of this rank has ended, by this error, or without one if the text is
  /// empty. Waits for the other ranks to end, for `patience` at most. Returns whether this rank is
  /// to print the error. If the error is that of another rank, that rank prints it, if it is still
  /// there. Every rank calls this before the object is destroyed.
  virtual Report report_end(std::string_view error, std::chrono::milliseconds patience) = 0;
  /// Returns, after report_end(), whether all ranks have ended. If not, the caller ends them by
  /// abort().
  virtual bool all_ended() const = 0;

  /// Ends all processes of the run at once, this one with the status. After report_end(), names the
  /// ranks that have not come, if no rank has an error to report.
  [[noreturn]] virtual void abort(int status) = 0;
};

/// Joins the processes that were started with this one, and returns them; null if it was started
/// alone. Throws Error if it was started as one of several, and they cannot meet: this build has no
/// MPI, or the launcher works with another MPI, so that each process would train alone. If not all
/// processes come within `patience`, those that have come say so, and the run ends.
std::unique_ptr<Processes> join_processes(std::chrono::milliseconds patience = kRankTimeout);

}  // namespace tessera
