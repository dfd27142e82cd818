#include "plan/explain_overlap.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/words.h"
#include "plan/overlap_step.h"
#include "plan/predicted_step.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

/// A row's key: the axes, and the operation with its block.
using RowKey = std::pair<std::string, std::string>;

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

std::map<RowKey, double> exposed_by_row(const PredictedStep& step) {
  std::map<RowKey, double> result;
  for (const PredictedCall& call : step.calls) result[key_of(call)] += call.exposed;
  return result;
}

/// The step of the same configuration with another overlap.
struct OtherOverlap {
  double seconds = 0;
  std::map<RowKey, double> exposed;
};

OtherOverlap predict_with(RunConfig config, const StepPlan& plan, bool overlaps, int64_t memory,
                          const SecondsOfNode& seconds) {
  config.parallel.overlap = overlaps;
  config.parallel.overlap_memory = {memory};
  const StepPrograms programs = step_programs(config, plan.mesh_rank());
  const PredictedStep step =
      predict_step(programs, static_cast<int>(plan.micro_batches), run_target(config), seconds);
  return {.seconds = step.seconds, .exposed = exposed_by_row(step)};
}

std::string in_milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

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
  if (exposed_at_most_memory < 0.95 * exposed) return "parallel.overlap_memory";
  return beside.empty() ? "its result is needed at once"
                        : "what needs no result of it takes less time";
}

OverlapAccount overlap_account(const RunConfig& config, const StepPlan& plan) {
  OverlapAccount account;
  if (plan.mesh_rank().mesh.ranks() == 1) return account;
  const StepOverlap overlap = step_overlap(config);
  account.times = overlap.times;
  const SecondsOfNode& seconds = overlap.options.seconds;
  const PredictedStep step = predict_step(plan.programs, static_cast<int>(plan.micro_batches),
                                          run_target(config), seconds);
  constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max() / 4;
  const OtherOverlap written = predict_with(config, plan, false, 0, seconds);
  const OtherOverlap unbounded = predict_with(config, plan, true, kNoBound, seconds);
  account.seconds = step.seconds;
  account.seconds_written = written.seconds;
  const auto exposed_in = [](const std::map<RowKey, double>& exposed, const RowKey& key) {
    const auto found = exposed.find(key);
    return found == exposed.end() ? 0 : found->second;
  };
  std::map<RowKey, OverlapRow> rows;
  for (const PredictedCall& call : step.calls) {
    const RowKey key = key_of(call);
    if (key.first.empty()) continue;  // work of a lane that calls no other rank
    OverlapRow& row = rows[key];
    row.axes = key.first;
    row.operation = key.second;
    ++row.calls;
    row.seconds += call.seconds;
    row.exposed += call.exposed;
    row.exposed_written = exposed_in(written.exposed, key);
    row.exposed_at_most_memory = exposed_in(unbounded.exposed, key);
    for (const auto& [name, beside] : call.beside) row.beside[name] += beside;
  }
  for (auto& [key, row] : rows) account.rows.push_back(std::move(row));
  std::ranges::stable_sort(account.rows, std::greater(), &OverlapRow::seconds);
  return account;
}

std::string overlap_table(const OverlapAccount& account) {
  Table table({"axes", "operation", "calls", "ms", "hidden", "exposed", "as written", "beside",
               "exposed because"});
  double exposed = 0;
  for (const OverlapRow& row : account.rows) {
    table.add({row.axes, row.operation, std::to_string(row.calls), in_milliseconds(row.seconds),
               in_milliseconds(row.hidden()), in_milliseconds(row.exposed),
               in_milliseconds(row.exposed_written), beside_text(row), row.reason()});
    exposed += row.exposed;
  }
  return fmt::format(
      "communication beside computing, in ms of a step ({}; messages between stages left out)\n{}"
      "predicted step {} ms, {} of it exposed; in the order as it is written {} ms ({:.2f} times "
      "as long)\n",
      account.times, table.text(), in_milliseconds(account.seconds), in_milliseconds(exposed),
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
                    {"beside_seconds", row.beside},
                    {"exposed_because", row.reason()}});
  }
  return {{"times", account.times},
          {"step_seconds", account.seconds},
          {"step_seconds_as_written", account.seconds_written},
          {"calls", rows}};
}

}  // namespace tessera
