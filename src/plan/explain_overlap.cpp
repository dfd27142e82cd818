#include "plan/explain_overlap.h"

#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/words.h"
#include "plan/overlap_step.h"
#include "plan/predicted_step.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

constexpr std::string_view kMessages = "messages of ";

/// A row's key: the axes, and the operation with its block.
using RowKey = std::pair<std::string, std::string>;
using Rows = std::map<RowKey, PredictedSeconds>;

RowKey key_of(const PredictedCall& call) {
  const Node& node = *call.node;
  const Mesh& mesh = call.program->mesh();
  std::vector<std::string> names;
  for (const std::vector<Axis>& axes : node.operation->group_axes()) {
    for (const Axis axis : axes) {
      const std::string& name = mesh.name(axis);
      const bool is_new = std::ranges::find(names, name) == names.end();
      if (mesh.size(axis) > 1 && is_new) names.push_back(name);
    }
  }
  return {join(names, "+"), fmt::format("{} of {}", node.operation->name(), word(node.block))};
}

/// A predicted step, with the rows of the rank that is explained.
struct Predicted {
  double seconds = 0;
  double computing = 0;
  int calls_alone = 0;
  Rows rows;
};

void add(PredictedSeconds& sum, const PredictedSeconds& times) {
  sum.calls += times.calls;
  sum.seconds += times.seconds;
  sum.exposed += times.exposed;
  sum.waiting += times.waiting;
  for (const auto& [name, beside] : times.beside) sum.beside[name] += beside;
}

/// Predicts a step. `of_rank` are the programs of the rank that is explained, if they are known.
Predicted predict(const RunConfig& config, const MeshRank& mesh_rank, const StepSeconds& seconds,
                  const StepPrograms* of_rank = nullptr) {
  const Mesh& mesh = mesh_rank.mesh;
  const std::array axes{mesh.pipeline()};
  std::list<StepPrograms> others;
  std::vector<const StepPrograms*> stages;
  for (const int rank : mesh.group(mesh_rank.rank, axes)) {
    const bool is_known = rank == mesh_rank.rank && of_rank != nullptr;
    stages.push_back(is_known ? of_rank
                              : &others.emplace_back(step_programs(config, {mesh, rank})));
  }
  const PredictedStep step = predict_step(config, stages, run_target(config), seconds);
  const PredictedStage& stage = step.stages[static_cast<size_t>(mesh.stage(mesh_rank.rank))];
  Predicted result{.seconds = step.seconds,
                   .computing = stage.computing,
                   .calls_alone = step.calls_alone,
                   .rows = {}};
  for (const PredictedCall& call : stage.calls) {
    const RowKey key = key_of(call);
    // The rest is work of a lane that calls no other rank.
    if (!key.first.empty()) add(result.rows[key], call.times);
  }
  for (const auto& [kind, times] : stage.messages) {
    const std::string operation = fmt::format("{}{}", kMessages, word(kind));
    add(result.rows[{mesh.name(mesh.pipeline()), operation}], times);
  }
  return result;
}

/// Predicts the step with another overlap.
Predicted predict_with(RunConfig config, const MeshRank& mesh_rank, bool overlaps, int64_t memory,
                       const StepSeconds& seconds) {
  config.parallel.overlap = overlaps;
  config.parallel.overlap_memory = {memory};
  return predict(config, mesh_rank, seconds);
}

double exposed_in(const Predicted& step, const RowKey& key) {
  const auto found = step.rows.find(key);
  return found == step.rows.end() ? 0 : found->second.exposed;
}

std::string in_milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string sentence_of(const MicroBatchTurns& turns, bool overlaps) {
  if (!overlaps) return "micro-batches do not take turns: parallel.overlap is false";
  if (turns.empty()) return fmt::format("micro-batches do not take turns: {}", turns.none_because);
  return turns.in_pairs
             ? "two micro-batches take turns: their forward passes, then their backward passes"
             : "a backward pass takes turns with the forward pass of the next micro-batch";
}

/// Returns the operations that take most of the time beside a row's calls.
std::string beside_text(const OverlapRow& row) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, seconds] : row.beside) sorted.emplace_back(seconds, name);
  std::ranges::sort(sorted, std::greater());
  std::vector<std::string> names;
  for (const auto& [seconds, name] : sorted) {
    if (names.size() == 3) break;
    names.push_back(name);
  }
  return names.empty() ? "nothing" : join(names, ", ");
}

}  // namespace

std::string OverlapRow::reason() const {
  if (exposed <= 0.001 * seconds) return "";
  if (is_message) return "the schedule waits for it";
  if (exposed_unbounded < 0.95 * exposed) return "parallel.overlap_memory";
  return beside.empty() ? "its result is needed at once"
                        : "what needs no result of it takes less time";
}

OverlapAccount overlap_account(const RunConfig& config, const StepPlan& plan) {
  OverlapAccount account;
  const MeshRank mesh_rank = plan.mesh_rank();
  if (mesh_rank.mesh.ranks() == 1) return account;
  const StepOverlap overlap = step_overlap(config, mesh_rank.mesh);
  account.times = overlap.times;
  const StepSeconds seconds = overlap.seconds();
  constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max() / 4;
  const Predicted step = predict(config, mesh_rank, seconds, &plan.programs);
  const Predicted written = predict_with(config, mesh_rank, false, 0, seconds);
  const Predicted unbounded = predict_with(config, mesh_rank, true, kNoBound, seconds);
  account.computing = step.computing;
  account.seconds = step.seconds;
  account.seconds_written = written.seconds;
  account.turns = sentence_of(plan.programs.sets.front().turns, config.parallel.overlap);
  account.calls_alone = step.calls_alone;
  for (const auto& [key, times] : step.rows) {
    account.rows.push_back({.axes = key.first,
                            .operation = key.second,
                            .is_message = key.second.starts_with(kMessages),
                            .calls = times.calls,
                            .seconds = times.seconds,
                            .exposed = times.exposed,
                            .exposed_written = exposed_in(written, key),
                            .exposed_unbounded = exposed_in(unbounded, key),
                            .waiting = times.waiting,
                            .beside = times.beside});
  }
  std::ranges::stable_sort(account.rows, std::greater(), &OverlapRow::seconds);
  return account;
}

std::string overlap_table(const OverlapAccount& account) {
  Table table({"axes", "operation", "calls", "ms", "hidden", "exposed", "as written", "waiting",
               "beside", "exposed because"});
  double exposed = 0, waiting = 0;
  for (const OverlapRow& row : account.rows) {
    table.add({row.axes, row.operation, std::to_string(row.calls), in_milliseconds(row.seconds),
               in_milliseconds(row.hidden()), in_milliseconds(row.exposed),
               in_milliseconds(row.exposed_written), in_milliseconds(row.waiting), beside_text(row),
               row.reason()});
    exposed += row.exposed;
    waiting += row.waiting;
  }
  std::string notes;
  if (!account.turns.empty()) notes += account.turns + "\n";
  if (account.calls_alone > 0) {
    notes += fmt::format(
        "{} calls are predicted without their wait for other stages: each stage waited for "
        "another one\n",
        account.calls_alone);
  }
  return fmt::format(
      "communication beside computing, in ms of a step ({})\n{}{}"
      "predicted step {} ms: {} computing, {} exposed, {} waiting for other stages; in the order "
      "as "
      "it is written {} ms ({:.2f} times as long)\n",
      account.times, table.text(), notes, in_milliseconds(account.seconds),
      in_milliseconds(account.computing), in_milliseconds(exposed), in_milliseconds(waiting),
      in_milliseconds(account.seconds_written), account.seconds_written / account.seconds);
}

nlohmann::ordered_json overlap_json(const OverlapAccount& account) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson rows = OrderedJson::array();
  for (const OverlapRow& row : account.rows) {
    rows.push_back({{"axes", row.axes},
                    {"operation", row.operation},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"exposed_seconds", row.exposed},
                    {"exposed_seconds_as_written", row.exposed_written},
                    {"waiting_seconds", row.waiting},
                    {"beside_seconds", row.beside},
                    {"exposed_because", row.reason()}});
  }
  return {{"times", account.times},
          {"step_seconds", account.seconds},
          {"computing_seconds", account.computing},
          {"step_seconds_as_written", account.seconds_written},
          {"turns", account.turns},
          {"calls_without_other_stages", account.calls_alone},
          {"calls", rows}};
}

}  // namespace tessera
