#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/rank_control.h"
#include "comm/rank_groups.h"
#include "config/run_config.h"
#include "engine/executor.h"
#include "pipeline/clock.h"
#include "pipeline/stage_runner.h"
#include "plan/node_seconds.h"
#include "plan/step_plan.h"

namespace tessera {

/// What a rank did in one timed step. Times are seconds of the first rank's clock.
struct TimedStep {
  double start = 0;
  std::vector<TimedAction> actions;
  double list_end = 0;  ///< of the passes
  double end = 0;       ///< of the update
};

/// Returns whether ranks exchange rows for their experts, whose number follows from the choices of
/// a router.
bool exchanges_rows(const RunConfig& config);

/// One rank of a timed run. It gives every node its part of its pass' time, runs the programs of a
/// step and notes when each action begins. One thread uses it.
class TimedRank {
 public:
  /// Plans the steps of a resolved configuration of one phase. All ranks call it. Throws Error if
  /// the run does not fit into memory.
  TimedRank(const RunConfig& config, int micro_batches, RankGroups& groups,
            const RankControl& control, std::span<const int> ranks_here, FoundOrders& found);

  int64_t arena_bytes() const { return plan_.memory.arena_bytes; }

  const Target& target() const { return runtime_.target(); }

  /// Returns the FLOPs of the passes of this rank's chunks, in the model's order; or the seconds of
  /// their work, if `seconds` is not null.
  std::vector<ChunkTimes> passes(const NodeSeconds* seconds) const;

  /// Sets how long the passes take from now on. With `seconds`, each node takes its own, those of
  /// the update too. Otherwise a pass is shared out by FLOPs, and what comes before and after the
  /// passes takes no time but that of its collectives, except for an update that computes.
  void set_times(const ScheduleTimes& times, bool computes_update,
                 const NodeSeconds* seconds = nullptr);

  /// Returns the factor on the gradients of the last update that computed: 1, or 0 if
  /// none did.
  double update_scale() const;

  /// Runs the program before the passes, the list of passes, and the update. The first rank's clock
  /// is `ahead` seconds ahead of this rank's.
  TimedStep run(double ahead);
  /// Waits for what the step has left at work, such as gathers that the next step would await.
  void synchronize() { executor_.synchronize(); }

  /// Records the steps that run from now on in `trace`, with the times that were set for nodes;
  /// null ends that, after synchronize(). The trace's clock is the processor's.
  void set_trace(Trace* trace) {
    executor_.set_trace(trace);
    runner_.set_trace(trace);
  }
  /// Returns what the list made the rank do since the trace began, and forgets it.
  std::vector<TimedEntry> take_timed() { return runner_.take_timed(); }
  Runtime& runtime() { return runtime_; }
  const StepPrograms& programs() const { return plan_.programs; }

 private:
  /// Writes the inputs of an update: those of the first step, without clipping.
  void write_update_inputs();
  /// Returns the time that the nodes of an action take; less than its pass takes if a half of a
  /// backward pass has no nodes.
  double seconds_of_nodes(const Action& action);

  Runtime runtime_;
  StepPlan plan_;
  Executor executor_;
  StageRunner runner_;
  StageList list_;
  bool counts_rows_;  // those that ranks exchange for their experts are computed
  ScheduleTimes times_;
  std::map<const Program*, std::vector<double>> node_times_;    // of programs whose nodes take time
  std::map<std::pair<int, Segment>, double> seconds_of_nodes_;  // by program and segment
};

}  // namespace tessera
