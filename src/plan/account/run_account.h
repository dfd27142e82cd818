#pragma once

#include <optional>
#include <vector>

#include "pipeline/run_trace.h"
#include "plan/account/critical_path.h"
#include "plan/account/network_account.h"

namespace tessera {

/// The time of one rank in the passes of a step. Idle time is all that is not in an action.
struct RankTime {
  int rank = 0;
  int stage = 0;
  double busy_seconds = 0;  ///< in actions
  double idle_seconds = 0;
  double wait_seconds = 0;  ///< the part of the idle time in waits for messages
};

/// The account of a traced step on all ranks. That of the passes is from the start of the first
/// action of any rank to the end of the last one.
struct RunAccount {
  TracedSchedule schedule;
  int ranks_left_out = 0;  ///< as in RunTrace; the account is of the others
  int stages = 1;          ///< at least, if ranks are left out
  double seconds = 0;
  /// Idle time of all ranks over their busy time (Llama 3, 3.1.1). A single stage has no bubble:
  /// its ranks are idle because one of them begins or ends later than another.
  std::optional<double> bubble;
  double clock_uncertainty = 0;  ///< the largest of the ranks, in seconds
  std::vector<RankTime> ranks;
  NetworkAccount network;  ///< of the whole step, as the path
  CriticalPath path;
};

/// Returns the account of a trace.
RunAccount account_for_run(const RunTrace& trace);

}  // namespace tessera
