// measure_schedule() starts a TimedRank for each rank. The ranks share the FLOPs of their chunks,
// so that each knows the times of all passes.

#include "train/bench_schedule.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <list>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/monotonic.h"
#include "comm/clock_offset.h"
#include "comm/in_process/run_mesh.h"
#include "comm/process_groups.h"
#include "comm/rank_control.h"
#include "config/pipeline_of.h"
#include "hardware/hardware_file.h"
#include "plan/node_seconds.h"
#include "plan/overlap_step.h"
#include "train/same_run.h"
#include "train/timed_rank.h"
#include "train/trace_timed_step.h"

namespace tessera {
namespace {

/// Throws Error unless the ranks are on the processor and what they send is known without values.
void require_timed_run(const RunConfig& config) {
  if (config.run.device != Device::cpu) {
    throw Error(
        "run.device is \"{}\", and timed runs are for ranks on the processor; set it to \"cpu\"",
        word(config.run.device));
  }
  const ParallelSection& parallel = config.parallel;
  if (!exchanges_rows(config) || config.model.forced_uniform_routing) return;
  throw Error(
      "parallel.expert is {} and parallel.expert_exchange \"{}\": a timed run computes no "
      "values, so it does not know how many tokens the ranks would exchange for their experts; set "
      "model.forced_uniform_routing to true, parallel.expert to 1, or parallel.expert_exchange to "
      "\"all_gather\"",
      parallel.expert, word(parallel.expert_exchange));
}

/// What all ranks measure.
struct ScheduleTask {
  RunConfig config;  // of one phase
  PipelineSchedule schedule;
  PassLengths lengths;
  bool traces_last = false;  // whether the last measured step has a trace
};

/// Throws Error as measure_schedule() does.
ScheduleTask schedule_task(const RunConfig& config, const Mesh& mesh, const PassLengths& lengths) {
  TESSERA_CHECK(config.train.phases.empty(), "a schedule is measured in one phase");
  require_timed_run(config);
  return {config, pipeline_schedule(config, mesh), lengths};
}

/// Returns the figures of a run whose first action begins at 0. `stages` have what one rank of each
/// did.
ScheduleFigures figures_of_run(const std::vector<TimedStep>& stages) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const TimedStep& stage : stages) {
    begin = std::min(begin, stage.actions.front().start);
    end = std::max(end, stage.list_end);
  }
  std::vector<std::vector<TimedAction>> actions;
  for (const TimedStep& stage : stages) {
    std::vector<TimedAction>& of_stage = actions.emplace_back(stage.actions);
    for (TimedAction& timed : of_stage) {
      timed.start -= begin;
      timed.end -= begin;
    }
  }
  return figures_of(actions, end - begin);
}

/// Returns the times of a run of all ranks.
StepTimes step_times(const std::vector<TimedStep>& ranks) {
  const auto last = [&](double TimedStep::*end) { return std::ranges::max(ranks, {}, end).*end; };
  const double end = last(&TimedStep::end);
  return {.seconds = end - std::ranges::min(ranks, {}, &TimedStep::start).start,
          .update_seconds = end - last(&TimedStep::list_end)};
}

/// What one rank measured, as a text by which the first rank gets it.
struct RankReport {
  int64_t arena_bytes = 0;
  std::vector<TimedStep> runs;

  std::string text() const {
    nlohmann::json json{{"arena_bytes", arena_bytes}, {"runs", nlohmann::json::array()}};
    for (const TimedStep& run : runs) {
      nlohmann::json actions = nlohmann::json::array();
      for (const TimedAction& timed : run.actions) {
        actions.push_back({timed.action.kind, timed.action.chunk, timed.action.micro_batch,
                           timed.start, timed.end});
      }
      json["runs"].push_back({{"start", run.start},
                              {"actions", actions},
                              {"list_end", run.list_end},
                              {"end", run.end}});
    }
    return json.dump();
  }

  static RankReport of_text(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text);
    RankReport report{.arena_bytes = json["arena_bytes"], .runs = {}};
    for (const nlohmann::json& run_json : json["runs"]) {
      TimedStep& run = report.runs.emplace_back(TimedStep{.start = run_json["start"],
                                                          .actions = {},
                                                          .list_end = run_json["list_end"],
                                                          .end = run_json["end"]});
      for (const nlohmann::json& timed : run_json["actions"]) {
        run.actions.push_back(
            {.action = {.kind = timed[0], .chunk = timed[1], .micro_batch = timed[2]},
             .start = timed[3],
             .end = timed[4]});
      }
    }
    return report;
  }
};

/// Returns the seconds of nodes by run.hardware, if the times are calculated from it.
std::optional<NodeSeconds> node_seconds_of(const ScheduleTask& task, const Target& target) {
  if (task.lengths.rule != PassRule::hardware) return std::nullopt;
  const std::string& path = task.config.run.hardware;
  if (path.empty()) {
    throw Error(
        "--times is hardware, but run.hardware names no file; measure one with `tessera bench all` "
        "and set run.hardware to it");
  }
  return NodeSeconds(read_hardware(path), path, target);
}

/// Predicts the step of a timed run, if run.hardware has the times of calls.
std::optional<PredictedStep> predicted_step(const ScheduleTask& task, const Mesh& mesh,
                                            const Target& target, const NodeSeconds* seconds) {
  if (seconds == nullptr || !seconds->knows_calls(mesh)) return std::nullopt;
  const StepSeconds of_run{
      .node =
          [&](const Program& program, const Node& node) {
            const bool computes = node.operation->lane() == Lane::compute;
            return computes ? seconds->work(program, node) : seconds->calls(program, node);
          },
      .message = [&](const Program& program, std::span<const Value> values,
                     int peer) { return seconds->messages(program, values, peer); }};
  const std::array axes{mesh.pipeline()};
  std::list<StepPrograms> programs;
  std::vector<const StepPrograms*> stages;
  for (const int rank : mesh.group(0, axes)) {
    stages.push_back(&programs.emplace_back(step_programs(task.config, {mesh, rank})));
  }
  return predict_step(task.config, stages, target, of_run);
}

/// Measures as one rank of the mesh of `groups`. The first rank gets the result.
std::optional<ScheduleMeasurement> measure_as_rank(const ScheduleTask& task, const Repeats& repeats,
                                                   RankGroups& groups, const RankControl& control,
                                                   std::span<const int> ranks_here,
                                                   FoundOrders& found) {
  const Mesh& mesh = groups.mesh();
  const ChunkPlacement& placement = task.schedule.placement;
  TimedRank rank(task.config, task.schedule.micro_batches, groups, control, ranks_here, found);
  std::optional<NodeSeconds> seconds;
  std::vector<ChunkTimes> passes;
  control.together([&] {
    seconds = node_seconds_of(task, rank.target());
    passes = rank.passes(seconds ? &*seconds : nullptr);
  });
  passes = gather_chunks(passes, mesh, placement, control);
  ScheduleTimes times;
  control.together([&] { times.chunks = lengths_of(task.lengths, passes, placement.ranks); });
  rank.set_times(times, task.lengths.computes_update, seconds ? &*seconds : nullptr);
  Repeats own = repeats;
  if (!control.is_first()) own.before = {};
  RankReport report{.arena_bytes = rank.arena_bytes(), .runs = {}};
  const ClockOffset offset = measure_clock_offset(control, monotonic_clock());
  GatheredTraces traces;
  int64_t step = 0;
  own.each([&](bool is_measured) {
    control.wait();
    ++step;
    if (task.traces_last && step == repeats.warmup + repeats.measured) {
      TracedTimedStep traced =
          run_traced(rank, task.config, task.schedule, step, offset.seconds, control);
      traces = std::move(traced.traces);
      return report.runs.push_back(std::move(traced.step));
    }
    TimedStep run = rank.run(offset.seconds);
    if (is_measured) report.runs.push_back(std::move(run));
  });
  const std::vector<std::string> texts = control.texts_for_first(report.text());
  if (!control.is_first()) return std::nullopt;
  ScheduleMeasurement result{
      .schedule = task.schedule,
      .lengths = task.lengths,
      .ranks = mesh.ranks(),
      .expected = measure(task.schedule, times),
      .measured = {},
      .steps = {},
      .arena_bytes = {},
      .traces = std::move(traces),
      .predicted = predicted_step(task, mesh, rank.target(), seconds ? &*seconds : nullptr)};
  std::vector<RankReport> ranks;
  for (const std::string& text : texts) ranks.push_back(RankReport::of_text(text));
  const Axis pipeline = mesh.pipeline();
  const std::vector<int> stage_ranks = mesh.group(0, std::span(&pipeline, 1));
  for (const int stage_rank : stage_ranks) {
    result.arena_bytes.push_back(ranks[static_cast<size_t>(stage_rank)].arena_bytes);
  }
  for (size_t i = 0; i < ranks.front().runs.size(); ++i) {
    std::vector<TimedStep> run;
    for (const RankReport& report_of_rank : ranks) run.push_back(report_of_rank.runs[i]);
    result.steps.push_back(step_times(run));
    std::vector<TimedStep> stages;
    for (const int stage_rank : stage_ranks) stages.push_back(run[static_cast<size_t>(stage_rank)]);
    result.measured.push_back(figures_of_run(stages));
  }
  return result;
}

}  // namespace

ScheduleMeasurement measure_schedule(const RunConfig& config, const Mesh& mesh,
                                     const PassLengths& lengths, const Repeats& repeats,
                                     bool traces_last) {
  ScheduleTask task = schedule_task(config, mesh, lengths);
  task.traces_last = traces_last;
  std::vector<int> all_ranks(static_cast<size_t>(mesh.ranks()));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  std::optional<ScheduleMeasurement> result;
  FoundOrders found;
  World world(mesh.ranks(), std::chrono::seconds(config.run.rank_timeout));
  run_mesh(world, mesh, [&](RankGroups& groups) {
    auto measured = measure_as_rank(task, repeats, groups, RankControl(groups), all_ranks, found);
    if (measured) result = std::move(measured);
  });
  return std::move(result.value());
}

std::optional<ScheduleMeasurement> measure_schedule(const RunConfig& config, const Mesh& mesh,
                                                    const PassLengths& lengths,
                                                    const Repeats& repeats, Processes& processes,
                                                    bool traces_last) {
  processes.set_timeout(std::chrono::seconds(config.run.rank_timeout));
  processes.check_calls(config.run.check_calls);
  RankGroups groups = groups_of(mesh, processes);
  const RankControl control = control_of(groups, processes);
  require_same_start(config, processes, control);
  const std::array facts{readable_fact("the rule of --times", std::string(word(lengths.rule))),
                         readable_fact("--seconds", fmt::format("{}", lengths.mean_seconds)),
                         SameFact{"the file of --times", text_of(lengths)},
                         readable_fact("--compute-update", lengths.computes_update ? "on" : "off"),
                         readable_fact("--trace", traces_last ? "given" : "not given"),
                         readable_fact("--repeats", std::to_string(repeats.measured)),
                         readable_fact("--warmup", std::to_string(repeats.warmup))};
  require_same(facts, processes, control);
  ScheduleTask task;
  control.together([&] { task = schedule_task(config, mesh, lengths); });
  task.traces_last = traces_last;
  FoundOrders found;
  return measure_as_rank(task, repeats, groups, control, processes.ranks_here(), found);
}

}  // namespace tessera
