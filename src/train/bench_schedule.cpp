// measure_schedule() starts a TimedRank for each rank. The ranks share the FLOPs of their chunks,
// so that each knows the times of all passes. A TimedRank gives every node its part of its pass'
// time, runs its list and notes when each action begins.

#include "train/bench_schedule.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/text.h"
#include "comm/in_process/run_mesh.h"
#include "comm/rank_control.h"
#include "config/pipeline_of.h"
#include "engine/compute_clock.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "pipeline/stage_runner.h"
#include "plan/balance_stages.h"
#include "plan/blocks/measurement_report.h"
#include "plan/chunk_times.h"
#include "plan/step_plan.h"

namespace tessera {
namespace {

/// What a rank did in one run. Times are seconds of a stopwatch that all ranks share.
struct RankRun {
  std::vector<TimedAction> actions;
  double end = 0;  ///< of the whole list
};

/// One rank of a timed run.
class TimedRank {
 public:
  TimedRank(const RunConfig& config, int micro_batches, RankGroups& groups,
            const RankControl& control)
      : runtime_(host_target(1)),
        plan_(plan_step_that_fits(config, runtime_.target(), nullptr,
                                  {groups.mesh(), groups.rank()}, control,
                                  all_ranks(groups.mesh()))),
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

  /// Runs the list.
  RankRun run(const Stopwatch& watch) {
    RankRun result;
    runner_.run(list_, [&](const StageAction& entry) {
      const double seconds_of_nodes = this->seconds_of_nodes(entry.run);
      const double start = watch.seconds();
      const double seconds = times_.of(entry.action);
      result.actions.push_back({.action = entry.action, .start = start, .end = start + seconds});
      wait(seconds - seconds_of_nodes);
    });
    result.end = watch.seconds();
    return result;
  }

 private:
  static std::vector<int> all_ranks(const Mesh& mesh) {
    std::vector<int> ranks;
    for (int rank = 0; rank < mesh.ranks(); ++rank) ranks.push_back(rank);
    return ranks;
  }

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

void require_known_messages(const RunConfig& config) {
  if (config.parallel.expert == 1) return;
  throw Error(
      "parallel.expert is {}: a timed run computes no values, so it does not know how many tokens "
      "the ranks exchange for their experts; set parallel.expert to 1",
      config.parallel.expert);
}

/// Returns the times of all chunks. `flops` are those of their passes.
std::vector<ChunkTimes> lengths_of(const PassLengths& lengths, const std::vector<ChunkTimes>& flops,
                                   int stages) {
  const int chunks = static_cast<int>(flops.size());
  if (lengths.rule == PassRule::file) return read_chunk_times(lengths.path, chunks);
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
ScheduleFigures figures_of_run(std::vector<RankRun> stages) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const RankRun& stage : stages) {
    begin = std::min(begin, stage.actions.front().start);
    end = std::max(end, stage.end);
  }
  std::vector<std::vector<TimedAction>> actions;
  for (RankRun& stage : stages) {
    for (TimedAction& timed : stage.actions) {
      timed.start -= begin;
      timed.end -= begin;
    }
    actions.push_back(std::move(stage.actions));
  }
  return figures_of(actions, end - begin);
}

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

}  // namespace

ScheduleMeasurement measure_schedule(const RunConfig& config, const Mesh& mesh,
                                     const PassLengths& lengths, const Repeats& repeats) {
  TESSERA_CHECK(config.train.phases.empty(), "a schedule is measured in one phase");
  require_known_messages(config);
  const RunConfig counted = with_stage_layers(config, mesh);
  const PipelineSchedule schedule = pipeline_schedule(counted, mesh);
  ScheduleMeasurement result{.schedule = schedule,
                             .lengths = lengths,
                             .ranks = mesh.ranks(),
                             .expected = {},
                             .measured = {},
                             .arena_bytes = {}};
  const auto stages = static_cast<size_t>(schedule.placement.ranks);
  result.arena_bytes.resize(stages);
  std::vector<std::vector<RankRun>> runs(stages);  // by stage and run
  const Axis pipeline = mesh.pipeline();
  const std::vector<int> measured_ranks = mesh.group(0, std::span(&pipeline, 1));
  const Stopwatch watch;
  World world(mesh.ranks(), std::chrono::seconds(config.run.rank_timeout));
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const RankControl control(groups);
    TimedRank rank(counted, schedule.micro_batches, groups, control);
    const std::vector<ChunkTimes> flops =
        gather_flops(rank.flops(), mesh, schedule.placement, control);
    const ScheduleTimes times{.chunks = lengths_of(lengths, flops, schedule.placement.ranks)};
    if (control.is_first()) result.expected = measure(schedule, times);
    rank.set_times(times);
    Repeats own = repeats;
    if (!control.is_first()) own.before = {};
    const bool is_measured = std::ranges::find(measured_ranks, groups.rank()) != measured_ranks.end();
    const auto stage = static_cast<size_t>(mesh.stage(groups.rank()));
    if (is_measured) result.arena_bytes[stage] = rank.arena_bytes();
    own.each([&](bool counts) {
      control.wait();
      RankRun run = rank.run(watch);
      if (counts && is_measured) runs[stage].push_back(std::move(run));
    });
  });
  for (size_t run = 0; run < runs.front().size(); ++run) {
    std::vector<RankRun> of_run;
    for (std::vector<RankRun>& stage : runs) of_run.push_back(std::move(stage[run]));
    result.measured.push_back(figures_of_run(std::move(of_run)));
  }
  return result;
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

