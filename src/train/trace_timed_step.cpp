#include "train/trace_timed_step.h"

#include <utility>

#include "comm/clock_offset.h"
#include "train/trace_step.h"

namespace tessera {

TracedTimedStep run_traced(TimedRank& rank, const RunConfig& config,
                           const PipelineSchedule& schedule, int64_t number, double ahead,
                           const RankControl& control) {
  const RankControl tracing = control.during("the trace of a timed step");
  const RankClock clock = monotonic_clock();
  rank.synchronize();
  const ClockOffset before = measure_clock_offset(tracing, clock);
  Trace trace(rank.runtime(), clock.seconds);
  TracedTimedStep result;
  {
    const Trace::Step traced(&trace, number);
    rank.set_trace(&trace);
    result.step = rank.run(ahead);
    rank.set_trace(nullptr);  // waits for all lanes
  }
  const ClockOffset after = measure_clock_offset(tracing, clock);
  const int64_t tokens = config.train.global_batch * config.data.context;
  result.traces = gather_traces(
      {.trace = rank_trace(trace.step(), rank.take_timed(), {config, /*gemm_peak=*/0, tokens},
                           rank.programs(), /*set=*/0, rank.runtime()),
       .begin = trace.begin(),
       .before = before,
       .after = after},
      {.name = schedule.name, .micro_batches = schedule.micro_batches}, tracing);
  return result;
}

}  // namespace tessera
