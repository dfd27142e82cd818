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
/// one or several machines. The ranks of World, which are threads of one process, meet in the same
/// way: what is said there of calls, order and errors holds here.
///
/// All functions may be called by any thread, but those that say that all ranks call them.
class Processes {
 public:
  Processes() = default;
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  virtual int rank() const = 0;
  int ranks() const { return static_cast<int>(hosts().size()); }
  /// The name of each rank's machine.
  virtual std::span<const std::string> hosts() const = 0;
  /// The ranks on this rank's machine, itself among them, in ascending order.
  std::vector<int> ranks_here() const;
  /// The rank with its machine, for messages: "rank 3 (node1)".
  std::string text(int rank) const;

  /// How long a call waits for other ranks from now on.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Returns how long that is.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// This rank's communicator in a group, an ordered list of ranks with this one among them. All
  /// ranks of the group ask for it with the same list, and each waits for the others. Throws Error
  /// that names those that ask for another order, and those that do not come in time.
  virtual Communicator group(std::span<const int> ranks, std::string_view lane) = 0;

  /// Ends the calls of all ranks on all lanes but kControlLane, as World::end_work().
  virtual void end_work(std::string_view why) = 0;

  /// Who reports an error.
  enum class Report {
    none,     ///< another rank, or there is no error
    own,      ///< this rank, whose error it is
    for_all,  ///< this rank, the first, and the error is that of all
  };
  /// Every rank calls it when its work has ended, before this goes away, with the error that ended
  /// it or an empty text, and waits for the others, for `patience` at most. Returns whether this
  /// rank is to report the error. Ranks that heard of another's error leave the report to that one,
  /// if it is still there.
  virtual Report report_end(std::string_view error, std::chrono::milliseconds patience) = 0;
  /// After report_end(): whether all ranks have come. If not, abort() is to end the others.
  virtual bool all_ended() const = 0;

  /// Ends all processes of the run at once, this one with the status. After report_end(), names
  /// the ranks that have not come, if no rank has an error to report.
  [[noreturn]] virtual void abort(int status) = 0;
};

/// Joins the processes that were started with this one. Null if it was started alone. Throws Error
/// if it was started as one of several, and they cannot meet: this build has no MPI, or the
/// launcher speaks another one's language and each process would train alone. If not all of them
/// come within `patience`, those that have come say so, and the run ends.
std::unique_ptr<Processes> join_processes(std::chrono::milliseconds patience = kRankTimeout);

}  // namespace tessera
