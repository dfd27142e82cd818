#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "comm/own_calls.h"
#include "comm/processes.h"
#include "comm/tcp/plane_letters.h"

namespace tessera {

/// A process on the control plane of its run: the service of the first rank's process, by TCP. The
/// plane knows who is who, who failed, who is missing and what each rank waits in. It ends runs,
/// and makes the calls of groups itself, unless their bytes move by MPI (join_by_mpi()).
class PlaneProcess : public Processes {
 public:
  /// Returns why calls of a lane fail; none if they do not.
  virtual std::optional<std::string> failure(std::string_view lane) const = 0;

  // The calls whose bytes move by MPI.

  /// Returns the record of this rank's calls, by which it answers when others ask what it does.
  OwnCalls& own_calls() { return own_calls_; }
  /// Tells the plane that this rank has waited in a call for a moment. If the wait cannot end, its
  /// verdict() comes to own_calls().
  virtual void begin_wait(PlaneWait wait) = 0;
  /// Tells the plane that a wait has ended.
  virtual void end_wait(int64_t wait) = 0;
  /// Tells the other rank of a message, through the plane, that this rank has withdrawn it.
  virtual void withdraw(const PlaneWithdrawal& withdrawal) = 0;

  /// Prints what abort() prints, and ends the other processes.
  virtual void end_others(int status) = 0;
  [[noreturn]] void abort(int status) final;

 protected:
  OwnCalls own_calls_;
};

/// Returns which error `rank`, one of the ranks that have ended, is to report. `ends` has the error
/// of each of these; the text is empty if the rank did its work. There are `ranks` ranks in all.
///
/// - If all ranks have ended by the same error, the first rank reports it for all.
/// - "rank N failed: ..." is the error of a rank that was told of another rank's failure. If rank N
///   has ended by that failure, N alone reports it.
/// - If several ranks have the same error, the lowest of them reports it.
Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks);

}  // namespace tessera
