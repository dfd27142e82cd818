// measure_schedule() starts a TimedRank for each rank. The ranks share the FLOPs of their chunks,
// so that each knows the times of all passes. A TimedRank gives every node its part of its pass'
// time, runs its list and notes when each action begins.

#include "train/bench_schedule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/monotonic.h"
#include "base/quantile.h"
#include "base/text.h"
#include "comm/clock_offset.h"
#include "comm/in_process/run_mesh.h"
#include "comm/process_groups.h"
#include "comm/rank_control.h"
#include "config/pipeline_of.h"
#include "engine/compute_clock.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "pipeline/stage_runner.h"
#include "plan/blocks/measurement_report.h"
#include "plan/chunk_times.h"
#include "plan/step_plan.h"
#include "train/same_run.h"

namespace tessera {
namespace {

/// What a rank did in one run. Times are seconds of the first rank's clock.
struct RankRun {
  std::vector<TimedAction> actions;
  double end = 0;  ///< of the whole list
};

/// One rank of a timed run.
class TimedRank {
 public:
  TimedRank(const RunConfig& config, int micro_batches, RankGroups& groups,
            const RankControl& control, std::span<const int> ranks_here)
      : runtime_(host_target(1)),
        plan_(plan_step_that_fits(config, runtime_.target(), nullptr,
                                  {groups.mesh(), groups.rank()}, control, ranks_here)),
        executor_(plan_.programs.list(), plan_.memory, runtime_),
        runner_(executor_),
        list_(plan_.programs.step_list(0, micro_batches)) {
    runtime_.join(groups);
  }

  int64_t arena_bytes() const { return plan_.memory.arena_bytes; }

  /// Returns the FLOPs of the passes of this rank's chunks, in the model's order.
  std::vector<ChunkTimes> flops() const {
    std::vector<ChunkTimes> result;
    for (const Chunk& chunk : plan_.programs.chunks()) result.push_back(chunk_flops(chunk.program));
    return result;
  }

  /// Sets how long the passes take from now on.
  void set_times(const ScheduleTimes& times) {
    times_ = times;
    const MeshRank mesh_rank = plan_.mesh_rank();
    const std::vector<int> chunks =
        plan_.programs.sets.front().placement.chunks_of(mesh_rank.mesh.stage(mesh_rank.rank));
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Program& program = plan_.programs.chunks()[i].program;
      const ChunkTimes& chunk_times = times.chunks[static_cast<size_t>(chunks[i])];
      node_times_[&program] = node_times(program, chunk_times);
    }
    executor_.set_node_seconds([this](const Program& program, const Node& node) {
      return node_times_.at(&program)[static_cast<size_t>(&node - program.nodes().data())];
    });
  }

  /// Runs the list. The first rank's clock is `ahead` seconds ahead of this rank's.
  RankRun run(double ahead) {
    RankRun result;
    runner_.run(list_, [&](const StageAction& entry) {
      const double seconds_of_nodes = this->seconds_of_nodes(entry.run);
      const double start = monotonic_seconds() + ahead;
      const double seconds = times_.of(entry.action);
      result.actions.push_back({.action = entry.action, .start = start, .end = start + seconds});
      wait(seconds - seconds_of_nodes);
    });
    result.end = monotonic_seconds() + ahead;
    return result;
  }

 private:
  /// Returns the time that the nodes of an action take; less than its pass takes if a half of a
  /// backward pass has no nodes.
  double seconds_of_nodes(const Action& action) {
    const auto [found, is_new] = seconds_of_nodes_.try_emplace({action.program, action.segment});
    if (is_new) {
      const Program& program = executor_.program(action.program);
      for (const int node : segment_nodes(program, action.segment)) {
        found->second += node_times_.at(&program)[static_cast<size_t>(node)];
      }
    }
    return found->second;
  }

  /// Waits as long as a pass takes beside its nodes.
  static void wait(double seconds) {
    ComputeClock clock;
    clock.add(seconds);
    clock.join();
  }

  Runtime runtime_;
  StepPlan plan_;
  Executor executor_;
  StageRunner runner_;
  StageList list_;
  ScheduleTimes times_;
  std::map<const Program*, std::vector<double>> node_times_;
  std::map<std::pair<int, Segment>, double> seconds_of_nodes_;  // by program and segment
};

/// Throws Error unless the ranks are on the processor and what they send is known without values.
void require_timed_run(const RunConfig& config) {
  if (config.run.device != Device::cpu) {
    throw Error(
        "run.device is \"{}\", and timed runs are for ranks on the processor; set it to \"cpu\"",
        word(config.run.device));
  }
  const ParallelSection& parallel = config.parallel;
  if (parallel.expert == 1 || parallel.expert_exchange == ExpertExchange::all_gather) return;
  throw Error(
      "parallel.expert is {} and parallel.expert_exchange \"{}\": a timed run computes no "
      "values, so it does not know how many tokens the ranks would exchange for their experts; set "
      "parallel.expert to 1, or parallel.expert_exchange to \"all_gather\"",
      parallel.expert, word(parallel.expert_exchange));
}

/// Returns the text of the file of --times; empty if there is none.
std::string text_of(const PassLengths& lengths) {
  return lengths.rule == PassRule::file && fs::exists(lengths.path) ? read_file(lengths.path) : "";
}

/// What all ranks measure.
struct ScheduleTask {
  RunConfig config;  // of one phase
  PipelineSchedule schedule;
  PassLengths lengths;
};

/// Throws Error as measure_schedule() does.
ScheduleTask schedule_task(const RunConfig& config, const Mesh& mesh, const PassLengths& lengths) {
  TESSERA_CHECK(config.train.phases.empty(), "a schedule is measured in one phase");
  require_timed_run(config);
  return {config, pipeline_schedule(config, mesh), lengths};
}

/// Reads the times of a file, of which at least one must be above 0.
std::vector<ChunkTimes> lengths_of_file(const fs::path& path, int chunks) {
  std::vector<ChunkTimes> times = read_chunk_times(path, chunks);
  const auto takes_time = [](const ChunkTimes& chunk) {
    return chunk.of(ActionKind::forward) + chunk.of(ActionKind::backward) > 0;
  };
  if (std::ranges::any_of(times, takes_time)) return times;
  throw Error("{}: all passes take 0 seconds; give at least one of them a time", path.string());
}

/// Returns the times of all chunks. `flops` are those of their passes.
std::vector<ChunkTimes> lengths_of(const PassLengths& lengths, const std::vector<ChunkTimes>& flops,
                                   int stages) {
  const int chunks = static_cast<int>(flops.size());
  if (lengths.rule == PassRule::file) return lengths_of_file(lengths.path, chunks);
  std::vector<ChunkTimes> times(flops.size());  // in proportion
  if (lengths.rule == PassRule::flops) times = flops;
  double sum = 0;
  for (const ChunkTimes& chunk : times) {
    sum += chunk.forward + chunk.input_gradients + chunk.weight_gradients;
  }
  const double scale = lengths.mean_seconds * 3 * stages / sum;
  for (ChunkTimes& chunk : times) {
    chunk.forward *= scale;
    chunk.input_gradients *= scale;
    chunk.weight_gradients *= scale;
  }
  return times;
}

/// Returns the FLOPs of all chunks of the model, of which each rank gives those of its stage.
std::vector<ChunkTimes> gather_flops(const std::vector<ChunkTimes>& own, const Mesh& mesh,
                                     const ChunkPlacement& placement, const RankControl& control) {
  std::vector<uint64_t> bits;
  for (const ChunkTimes& chunk : own) {
    for (const double flops : {chunk.forward, chunk.input_gradients, chunk.weight_gradients}) {
      bits.push_back(std::bit_cast<uint64_t>(flops));
    }
  }
  bits.resize(3 * placement.rank_of_chunk.size());  // stages may have different numbers of chunks
  const std::vector<uint64_t> all = control.gather(bits);
  std::vector<ChunkTimes> result(placement.rank_of_chunk.size());
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    size_t next = static_cast<size_t>(rank) * bits.size();
    const auto take = [&] { return std::bit_cast<double>(all[next++]); };
    for (const int chunk : placement.chunks_of(mesh.stage(rank))) {
      ChunkTimes& times = result[static_cast<size_t>(chunk)];
      times.forward = take();
      times.input_gradients = take();
      times.weight_gradients = take();
    }
  }
  return result;
}

/// Returns the figures of a run whose first action begins at 0. `stages` have what one rank of each
/// did.
ScheduleFigures figures_of_run(const std::vector<RankRun>& stages) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const RankRun& stage : stages) {
    begin = std::min(begin, stage.actions.front().start);
    end = std::max(end, stage.end);
  }
  std::vector<std::vector<TimedAction>> actions;
  for (const RankRun& stage : stages) {
    std::vector<TimedAction>& of_stage = actions.emplace_back(stage.actions);
    for (TimedAction& timed : of_stage) {
      timed.start -= begin;
      timed.end -= begin;
    }
  }
  return figures_of(actions, end - begin);
}

/// What one rank measured, as a text by which the first rank gets it.
struct RankReport {
  int64_t arena_bytes = 0;
  std::vector<RankRun> runs;

  std::string text() const {
    nlohmann::json json{{"arena_bytes", arena_bytes}, {"runs", nlohmann::json::array()}};
    for (const RankRun& run : runs) {
      nlohmann::json actions = nlohmann::json::array();
      for (const TimedAction& timed : run.actions) {
        actions.push_back({timed.action.kind, timed.action.chunk, timed.action.micro_batch,
                           timed.start, timed.end});
      }
      json["runs"].push_back({{"end", run.end}, {"actions", actions}});
    }
    return json.dump();
  }

  static RankReport of_text(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text);
    RankReport report{.arena_bytes = json["arena_bytes"], .runs = {}};
    for (const nlohmann::json& run_json : json["runs"]) {
      RankRun& run = report.runs.emplace_back(RankRun{.actions = {}, .end = run_json["end"]});
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

/// Returns "12.5 % (12.3-12.9)": the median, and the 10th and 90th percentiles.
std::string percent_and_spread(const std::vector<double>& shares) {
  return fmt::format("{:.1f} % ({:.1f}-{:.1f})", 100 * quantile(shares, 0.5),
                     100 * quantile(shares, 0.1), 100 * quantile(shares, 0.9));
}

std::vector<double> makespans(const ScheduleMeasurement& measurement) {
  std::vector<double> result;
  for (const ScheduleFigures& run : measurement.measured) result.push_back(run.makespan);
  return result;
}

std::vector<double> bubbles(const ScheduleMeasurement& measurement) {
  std::vector<double> result;
  for (const ScheduleFigures& run : measurement.measured) result.push_back(run.bubble);
  return result;
}

double micro_batches_per_second(const ScheduleMeasurement& measurement) {
  return measurement.schedule.micro_batches / quantile(makespans(measurement), 0.5);
}

/// Measures as one rank of the mesh of `groups`. The first rank gets the result.
std::optional<ScheduleMeasurement> measure_as_rank(const ScheduleTask& task, const Repeats& repeats,
                                                   RankGroups& groups, const RankControl& control,
                                                   std::span<const int> ranks_here) {
  const Mesh& mesh = groups.mesh();
  const ChunkPlacement& placement = task.schedule.placement;
  TimedRank rank(task.config, task.schedule.micro_batches, groups, control, ranks_here);
  const std::vector<ChunkTimes> flops = gather_flops(rank.flops(), mesh, placement, control);
  ScheduleTimes times;
  control.together([&] { times.chunks = lengths_of(task.lengths, flops, placement.ranks); });
  rank.set_times(times);
  Repeats own = repeats;
  if (!control.is_first()) own.before = {};
  RankReport report{.arena_bytes = rank.arena_bytes(), .runs = {}};
  const ClockOffset offset = measure_clock_offset(control, monotonic_clock());
  own.each([&](bool is_measured) {
    control.wait();
    RankRun run = rank.run(offset.seconds);
    if (is_measured) report.runs.push_back(std::move(run));
  });
  const std::vector<std::string> texts = control.texts_for_first(report.text());
  if (!control.is_first()) return std::nullopt;
  ScheduleMeasurement result{.schedule = task.schedule,
                             .lengths = task.lengths,
                             .ranks = mesh.ranks(),
                             .expected = measure(task.schedule, times),
                             .measured = {},
                             .arena_bytes = {}};
  const Axis pipeline = mesh.pipeline();
  std::vector<RankReport> stages;
  for (const int stage_rank : mesh.group(0, std::span(&pipeline, 1))) {
    stages.push_back(RankReport::of_text(texts[static_cast<size_t>(stage_rank)]));
    result.arena_bytes.push_back(stages.back().arena_bytes);
  }
  for (size_t i = 0; i < stages.front().runs.size(); ++i) {
    std::vector<RankRun> run;
    for (const RankReport& stage : stages) run.push_back(stage.runs[i]);
    result.measured.push_back(figures_of_run(run));
  }
  return result;
}

}  // namespace

ScheduleMeasurement measure_schedule(const RunConfig& config, const Mesh& mesh,
                                     const PassLengths& lengths, const Repeats& repeats) {
  const ScheduleTask task = schedule_task(config, mesh, lengths);
  std::vector<int> all_ranks(static_cast<size_t>(mesh.ranks()));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  std::optional<ScheduleMeasurement> result;
  World world(mesh.ranks(), std::chrono::seconds(config.run.rank_timeout));
  run_mesh(world, mesh, [&](RankGroups& groups) {
    auto measured = measure_as_rank(task, repeats, groups, RankControl(groups), all_ranks);
    if (measured) result = std::move(measured);
  });
  return std::move(result.value());
}

std::optional<ScheduleMeasurement> measure_schedule(const RunConfig& config, const Mesh& mesh,
                                                    const PassLengths& lengths,
                                                    const Repeats& repeats, Processes& processes) {
  processes.set_timeout(std::chrono::seconds(config.run.rank_timeout));
  RankGroups groups = groups_of(mesh, processes);
  const RankControl control = control_of(groups, processes);
  require_same_start(config, processes, control);
  const std::array facts{readable_fact("the rule of --times", std::string(word(lengths.rule))),
                         readable_fact("--seconds", fmt::format("{}", lengths.mean_seconds)),
                         SameFact{"the file of --times", text_of(lengths)},
                         readable_fact("--repeats", std::to_string(repeats.measured)),
                         readable_fact("--warmup", std::to_string(repeats.warmup))};
  require_same(facts, processes, control);
  ScheduleTask task;
  control.together([&] { task = schedule_task(config, mesh, lengths); });
  return measure_as_rank(task, repeats, groups, control, processes.ranks_here());
}

std::string schedule_json(const ScheduleMeasurement& measurement) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (size_t stage = 0; stage < measurement.arena_bytes.size(); ++stage) {
    const RankFigures& figures = measurement.expected.ranks[stage];
    stages.push_back({{"busy_seconds", figures.busy},
                      {"chunks_in_flight", figures.peak_in_flight},
                      {"peak_bytes", measurement.arena_bytes[stage]}});
  }
  const nlohmann::ordered_json json{
      {"bench", "schedule"},
      {"schedule", measurement.schedule.name},
      {"ranks", measurement.ranks},
      {"stages", measurement.schedule.placement.ranks},
      {"chunks", measurement.schedule.placement.chunks()},
      {"micro_batches", measurement.schedule.micro_batches},
      {"times", word(measurement.lengths.rule)},
      {"makespan_seconds", makespans(measurement)},
      {"expected_makespan_seconds", measurement.expected.makespan},
      {"bubble", bubbles(measurement)},
      {"expected_bubble", measurement.expected.bubble},
      {"micro_batches_per_second", micro_batches_per_second(measurement)},
      {"by_stage", stages}};
  return json.dump() + "\n";
}

std::string schedule_text(const ScheduleMeasurement& measurement) {
  const ChunkPlacement& placement = measurement.schedule.placement;
  Table table({"stage", "busy", "in flight", "peak memory"});
  for (size_t stage = 0; stage < measurement.arena_bytes.size(); ++stage) {
    const RankFigures& figures = measurement.expected.ranks[stage];
    table.add({std::to_string(stage), format_seconds(figures.busy),
               std::to_string(figures.peak_in_flight),
               format_bytes(measurement.arena_bytes[stage])});
  }
  return fmt::format(
      "{}: {} stages, {} chunks, {} micro-batches on {} ranks\n{}"
      "makespan        {} (10th-90th percentile of {}); {} by the schedule's clock\n"
      "bubble          {}; {:.1f} % by the schedule's clock\n"
      "micro-batches/s {:.4g}\n",
      measurement.schedule.name, placement.ranks, placement.chunks(),
      measurement.schedule.micro_batches, measurement.ranks, table.text(),
      median_and_spread(makespans(measurement)), measurement.measured.size(),
      format_seconds(measurement.expected.makespan), percent_and_spread(bubbles(measurement)),
      100 * measurement.expected.bubble, micro_batches_per_second(measurement));
}

}  // namespace tessera
