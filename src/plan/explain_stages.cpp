// The stages of a pipeline, side by side: stages_account() takes the numbers from the plans of one
// rank of each stage and from the clock of the schedule. stages_table() and stages_json() show
// them.

#include "plan/explain_stages.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/pipeline_of.h"
#include "plan/balance_stages.h"
#include "plan/chunk_times.h"
#include "plan/explain_held.h"

namespace tessera {
namespace {

/// Returns the most bytes that the frames of a stage's chunks keep at once. `chunk_bytes` are those
/// of one frame, by index in `chunks`. A frame counts in whole from its forward to the end of its
/// backward.
int64_t most_bytes_in_flight(const RankFigures& figures, const std::vector<int>& chunks,
                             const std::vector<int64_t>& chunk_bytes) {
  int64_t bytes = 0;
  int64_t most = 0;
  for (const TimedAction& timed : figures.actions) {
    const auto index = std::ranges::find(chunks, timed.action.chunk) - chunks.begin();
    const int64_t of_frame = chunk_bytes[static_cast<size_t>(index)];
    const ActionKind kind = timed.action.kind;
    if (kind == ActionKind::forward) bytes += of_frame;
    most = std::max(most, bytes);
    if (kind == ActionKind::backward || kind == ActionKind::weight_gradients) bytes -= of_frame;
  }
  return most;
}

StageAccount account_of(const StepPlan& plan, const std::vector<int>& chunks,
                        const RankFigures& figures) {
  std::vector<int64_t> saved;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto program = static_cast<size_t>(plan.programs.chunk_number(0, i));
    saved.push_back(plan.memory.programs[program].saved_bytes);
  }
  const MemoryPlan& memory = plan.memory;
  return {.rank = plan.mesh_rank().rank,
          .chunks = chunks,
          .parameters = elements_on_rank(plan),
          .step_flops = plan.flops.useful() * static_cast<double>(plan.micro_batches),
          .peak_bytes = memory.arena_bytes,
          .state_bytes = memory.kept_bytes,
          .activation_bytes = std::min(most_bytes_in_flight(figures, chunks, saved),
                                       memory.arena_bytes - memory.kept_bytes),
          .in_flight = static_cast<double>(figures.peak_in_flight) /
                       static_cast<double>(std::ssize(chunks))};
}

/// Returns the part of the model that a chunk has: "embedding, layers 0 to 3".
std::string range_text(const ChunkRange& range) {
  std::vector<std::string> parts;
  if (range.embedding) parts.emplace_back("embedding");
  const int64_t last = range.layers.end - 1;
  if (last == range.layers.first) {
    parts.push_back(fmt::format("layer {}", last));
  } else if (last > range.layers.first) {
    parts.push_back(fmt::format("layers {} to {}", range.layers.first, last));
  }
  if (range.head) parts.emplace_back("head");
  return join(parts, ", ");
}

/// Returns the part of the model that a stage has; chunks are separated by "; ".
std::string chunks_text(const StagesAccount& account, const StageAccount& stage) {
  std::vector<std::string> chunks;
  for (const int chunk : stage.chunks) {
    chunks.push_back(range_text(account.ranges[static_cast<size_t>(chunk)]));
  }
  return join(chunks, "; ");
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::string StageAccount::limit() const {
  const std::array<std::pair<int64_t, const char*>, 3> parts{
      {{state_bytes, "states"},
       {activation_bytes, "activations"},
       {peak_bytes - state_bytes - activation_bytes, "one pass"}}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

std::optional<StagesAccount> stages_account(const RunConfig& config, const Mesh& mesh,
                                            const std::function<StepPlan(int rank)>& plan_of) {
  if (model_chunks(config.parallel) == 1) return std::nullopt;
  StagesAccount account{.ranges = chunk_ranges(with_stage_layers(config, mesh)),
                        .stages = {},
                        .schedule = pipeline_schedule(config, mesh),
                        .equal_times = {},
                        .flops_as_times = {}};
  account.equal_times = measure(account.schedule, {});
  ScheduleTimes flops{.chunks = std::vector<ChunkTimes>(account.ranges.size())};
  const Axis pipeline = mesh.pipeline();
  for (const int rank : mesh.group(0, std::span(&pipeline, 1))) {
    const StepPlan plan = plan_of(rank);
    const std::vector<int> chunks = account.schedule.placement.chunks_of(mesh.stage(rank));
    for (size_t i = 0; i < chunks.size(); ++i) {
      flops.chunks[static_cast<size_t>(chunks[i])] = chunk_flops(plan.programs.chunks()[i].program);
    }
    const auto stage = static_cast<size_t>(mesh.stage(rank));
    account.stages.push_back(account_of(plan, chunks, account.equal_times.ranks[stage]));
  }
  double step_flops = 0;
  for (const StageAccount& stage : account.stages) step_flops += stage.step_flops;
  for (StageAccount& stage : account.stages) stage.share = stage.step_flops / step_flops;
  account.flops_as_times = measure(account.schedule, flops);
  return account;
}

std::string stages_table(const StagesAccount& account) {
  Table table({"stage", "rank", "chunks", "parameters", "FLOPs a step", "share", "peak memory",
               "states", "activations", "in flight", "most of it"});
  for (size_t i = 0; i < account.stages.size(); ++i) {
    const StageAccount& stage = account.stages[i];
    table.add({std::to_string(i), std::to_string(stage.rank), chunks_text(account, stage),
               format_count(static_cast<double>(stage.parameters)), format_count(stage.step_flops),
               percent(stage.share), format_bytes(stage.peak_bytes),
               format_bytes(stage.state_bytes), format_bytes(stage.activation_bytes),
               fmt::format("{:.3g}", stage.in_flight), stage.limit()});
  }
  return fmt::format(
      "stages\n{}schedule {}, {} micro-batches: bubble {} if all chunks take the same time, {} if "
      "their FLOPs are their times\n",
      table.text(), account.schedule.name, account.schedule.micro_batches,
      percent(account.equal_times.bubble), percent(account.flops_as_times.bubble));
}

nlohmann::ordered_json stages_json(const StagesAccount& account) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson stages = OrderedJson::array();
  for (const StageAccount& stage : account.stages) {
    OrderedJson chunks = OrderedJson::array();
    for (const int chunk : stage.chunks) {
      const ChunkRange& range = account.ranges[static_cast<size_t>(chunk)];
      chunks.push_back({{"chunk", chunk},
                        {"first_layer", range.layers.first},
                        {"layers", range.layers.end - range.layers.first},
                        {"embedding", range.embedding},
                        {"head", range.head}});
    }
    stages.push_back({{"rank", stage.rank},
                      {"chunks", chunks},
                      {"parameters", stage.parameters},
                      {"flops_per_step", stage.step_flops},
                      {"flops_share", stage.share},
                      {"peak_bytes", stage.peak_bytes},
                      {"state_bytes", stage.state_bytes},
                      {"activation_bytes", stage.activation_bytes},
                      {"micro_batches_in_flight", stage.in_flight},
                      {"most_of_memory", stage.limit()}});
  }
  return {{"schedule",
           {{"name", account.schedule.name},
            {"micro_batches", account.schedule.micro_batches},
            {"bubble", account.equal_times.bubble},
            {"bubble_with_flops_as_times", account.flops_as_times.bubble}}},
          {"stages", stages}};
}

}  // namespace tessera
