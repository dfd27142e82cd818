// explain() joins tables for a terminal: the tensors that a rank holds (explain_held.h), the
// comparison of compressed attention (explain_attention.h), the operations in the order in which
// they run (explain_rows.h), and totals of a step. explain_json() has the same as JSON. Everything
// is read from the plan, so the tables show what would run.

#include "plan/explain.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "plan/explain_attention.h"
#include "plan/explain_held.h"
#include "plan/explain_memory.h"
#include "plan/explain_overlap.h"
#include "plan/explain_rows.h"
#include "program/label_rules.h"

namespace tessera {
namespace {

/// Returns the index of the row with the most memory in use; -1 if the peak is outside a step.
int peak_row(const std::vector<ExplainRow>& rows, const MemoryPlan& plan) {
  const auto found = std::ranges::find_if(rows, [&](const ExplainRow& row) {
    return row.program == plan.peak_program && row.node == plan.peak_node;
  });
  return found == rows.end() ? -1 : static_cast<int>(found - rows.begin());
}

std::string number_or_blank(double value) { return value > 0 ? format_count(value) : ""; }

/// Returns the distributions of a node's results: one text if all are equal, otherwise a list.
std::string types_of_outputs(const Mesh& mesh, const std::vector<Distribution>& types) {
  std::vector<std::string> texts;
  for (const Distribution& type : types) texts.push_back(distribution_text(mesh, type));
  const bool equal = std::ranges::all_of(texts, [&](const auto& text) { return text == texts[0]; });
  return equal && !texts.empty() ? texts[0] : join(texts, "; ");
}

std::vector<std::string> type_texts(const Mesh& mesh, const std::vector<Distribution>& types) {
  std::vector<std::string> texts;
  for (const Distribution& type : types) texts.push_back(type.text(mesh));
  return texts;
}

/// Returns the table of operations, by default of layer 0 and the first mixture layer alone.
std::string operations_table(const StepPlan& plan, const std::vector<ExplainRow>& rows,
                             int64_t first_mixture, const ExplainOptions& options) {
  const bool several_ranks = plan.mesh_rank().mesh.ranks() > 1;
  std::vector<std::string> columns{"phase", "layer",   "block", "operation", "FLOPs",
                                   "bytes", "results", "saved", "in use"};
  if (several_ranks) columns.emplace_back("sent");
  columns.emplace_back("outputs");
  if (options.types) columns.insert(columns.end(), {"types", "dims"});
  Table table(columns);
  for (const ExplainRow& row : rows) {
    if (!options.all_layers && row.layer > 0 && row.layer != first_mixture) continue;
    std::vector<std::string> cells{row.phase,
                                   row.layer < 0 ? "" : std::to_string(row.layer),
                                   row.block,
                                   row.operation,
                                   number_or_blank(row.cost.flops + row.cost.repeated_flops),
                                   format_bytes(static_cast<int64_t>(row.cost.bytes)),
                                   row.results,
                                   row.saved_bytes > 0 ? format_bytes(row.saved_bytes) : "",
                                   format_bytes(row.memory_bytes)};
    const double sent = total_bytes(row.sent);
    if (several_ranks) {
      cells.push_back(sent > 0 ? format_bytes(static_cast<int64_t>(sent)) : "");
    }
    cells.push_back(row.outputs);
    if (options.types) {
      cells.push_back(types_of_outputs(plan.mesh_rank().mesh, row.types));
      cells.push_back(row.labels);
    }
    table.add(cells);
  }
  return table.text();
}

/// Returns, for each operation, which dims its labels allow ranks to split (label_rules.h).
std::string dims_in_words(const std::vector<ExplainRow>& rows) {
  std::string text = "what ranks may do with the dims of operands:\n";
  std::set<std::pair<std::string, std::string>> seen;
  for (const ExplainRow& row : rows) {
    if (!row.labels_decide || !seen.emplace(row.operation, row.labels).second) continue;
    const std::string words = in_words(parse_labels(row.labels));
    if (words.empty()) continue;  // the operation writes the whole tensor, whatever its type
    text += fmt::format("  {}: {}\n    {}\n", row.operation, row.labels, words);
  }
  return text;
}

/// Returns "rank 1 of 4 (2 tensor x 2 data)"; empty for one rank.
std::string layout_text(const MeshRank& mesh_rank) {
  if (mesh_rank.mesh.ranks() == 1) return "";
  return fmt::format("rank {} of {} ({})\n", mesh_rank.rank, mesh_rank.mesh.ranks(),
                     mesh_rank.mesh.text());
}

/// Returns the names of the axes of several ranks that are within a level.
std::vector<std::string> names_within(const Mesh& mesh, const MeshLevel& level, MeshView view) {
  std::vector<std::string> names;
  for (const Axis axis : mesh.axes_within(level, view)) {
    if (mesh.size(axis) > 1) names.push_back(mesh.name(axis));
  }
  return names;
}

/// Returns the table of the levels of the network; empty for one rank.
std::string levels_table(const Mesh& mesh) {
  if (mesh.ranks() == 1) return "";
  const bool experts = mesh.size(mesh.expert()) > 1;
  std::vector<std::string> columns{"level", "ranks", "axes within it"};
  if (experts) columns.emplace_back("those of experts");
  Table table(columns);
  for (const MeshLevel& level : mesh.levels()) {
    std::vector<std::string> cells{level.name, std::to_string(level.ranks),
                                   join(names_within(mesh, level, MeshView::dense), " x ")};
    if (experts) cells.push_back(join(names_within(mesh, level, MeshView::expert), " x "));
    table.add(cells);
  }
  return table.text() + "\n";
}

/// Returns the number of tokens whose FLOPs one rank computes in a micro-batch: the tokens of its
/// data-parallel group, divided by the ranks that share them.
double tokens_of_rank(const StepPlan& plan) {
  const Mesh& mesh = plan.mesh_rank().mesh;
  return static_cast<double>(plan.tokens * data_ranks(mesh)) / static_cast<double>(mesh.ranks());
}

/// Returns the FLOPs of the matrix products of a step's update on this rank: Muon's Newton-Schulz.
/// They do not depend on the tokens of the step.
double update_flops(const StepPlan& plan) {
  return count_flops(plan.programs.update.program).repeated;
}

/// Returns the totals of a step on this rank: parameters, FLOPs, bytes sent, memory.
std::string totals_table(const RunConfig& config, const StepPlan& plan,
                         const std::vector<ExplainRow>& rows) {
  const bool several_ranks = plan.mesh_rank().mesh.ranks() > 1;
  const double tokens = tokens_of_rank(plan);
  const auto micro_batches = static_cast<double>(plan.micro_batches);
  Table totals({"total", "value", "exactly"});
  const auto count = [&](const char* name, double value) {
    totals.add({name, format_count(value), fmt::format("{:.0f}", value)});
  };
  const auto bytes = [&](const char* name, int64_t value) {
    totals.add({name, format_bytes(value), fmt::format("{}", value)});
  };
  count("parameters", static_cast<double>(plan.parameters));
  count("active parameters a token", static_cast<double>(plan.active_parameters));
  count("of these in embedding and head", static_cast<double>(plan.embedding_parameters));
  if (several_ranks) count("parameters on this rank", static_cast<double>(elements_on_rank(plan)));
  count("FLOPs a token, forward", plan.flops.forward / tokens);
  count("FLOPs a token, backward", plan.flops.backward / tokens);
  count("FLOPs a token, repeated", plan.flops.repeated / tokens);
  const std::string this_rank = several_ranks ? ", this rank" : "";
  count(("FLOPs a step" + this_rank).c_str(), plan.flops.useful() * micro_batches);
  if (const double update = update_flops(plan); update > 0) {
    count(("FLOPs a step, Newton-Schulz" + this_rank).c_str(), update);
  }
  count("tokens a step", static_cast<double>(config.train.global_batch * config.data.context));
  for (const auto& [axes, sent] : sent_in_step(plan, rows)) {
    bytes(fmt::format("sent a step over {}", axes).c_str(), static_cast<int64_t>(sent));
  }
  bytes("weights, gradients and optimizer", plan.memory.kept_bytes);
  bytes("of it masters and moments", optimizer_bytes(plan));
  bytes("inputs", plan.input_bytes);
  bytes("saved for the backward pass", plan.memory.programs.front().saved_bytes);
  bytes("peak memory", plan.memory.arena_bytes);
  return totals.text();
}

nlohmann::ordered_json layout_json(const MeshRank& mesh_rank) {
  nlohmann::ordered_json axes = nlohmann::ordered_json::object();
  for (const AxisInfo& axis : mesh_rank.mesh.axes()) axes[axis.name] = axis.size;
  const Mesh& mesh = mesh_rank.mesh;
  nlohmann::ordered_json levels = nlohmann::ordered_json::array();
  for (const MeshLevel& level : mesh.levels()) {
    levels.push_back({{"name", level.name},
                      {"ranks", level.ranks},
                      {"axes", names_within(mesh, level, MeshView::dense)},
                      {"expert_axes", names_within(mesh, level, MeshView::expert)}});
  }
  return {{"ranks", mesh.ranks()}, {"rank", mesh_rank.rank}, {"axes", axes}, {"levels", levels}};
}

}  // namespace

std::string explain(const RunConfig& config, const StepPlan& plan, const ExplainOptions& options) {
  const std::vector<ExplainRow> rows = operation_rows(plan, options.types);
  const bool several_ranks = plan.mesh_rank().mesh.ranks() > 1;
  std::string text = layout_text(plan.mesh_rank()) + levels_table(plan.mesh_rank().mesh);
  if (several_ranks || options.types) {
    text += held_table(plan, config.model.dense_layers, options.all_layers) + "\n";
  }
  if (const std::string optimizers = optimizer_table(plan); !optimizers.empty()) {
    text += optimizers + "\n";
  }
  if (const std::string attention = attention_table(config); !attention.empty()) {
    text += attention + "\n";
  }
  text += operations_table(plan, rows, config.model.dense_layers, options);
  if (!options.all_layers && config.model.layers > 1) {
    text += "(the other layers repeat these; --all shows them)\n";
  }
  if (options.types) text += "\n" + dims_in_words(rows);
  text += "\n" + totals_table(config, plan, rows);
  if (several_ranks) text += "\n" + overlap_table(overlap_account(config, plan));
  text += "\n" + memory_table(plan);
  if (plan.memory.peak_node >= 0) {
    const Program& program = *plan.programs.list()[static_cast<size_t>(plan.memory.peak_program)];
    const Node& node = program.nodes()[static_cast<size_t>(plan.memory.peak_node)];
    text +=
        fmt::format("the peak falls in {} of the {} pass{}\n", node.operation->name(),
                    word(node.phase), node.layer < 0 ? "" : fmt::format(", layer {}", node.layer));
  }
  return text;
}

std::string explain_fit(const RunConfig& config, const StepPlan& plan) {
  if (is_gpu(config.run.device)) {
    return fmt::format(
        "run.device is \"{}\": --hardware FILE says what fits there (configs/hardware has files "
        "from data sheets)\n",
        word(config.run.device));
  }
  const int ranks = plan.mesh_rank().mesh.ranks();
  const int64_t beside_arena = ranks > 1 ? beside_arena_bytes(plan) : 0;
  const int64_t needed = ranks * (plan.memory.arena_bytes + beside_arena);
  std::string run = "the run does not fit";
  if (ranks > 1) {
    run =
        fmt::format("{} ranks like this one take {}, so the run does not fit with all of them here",
                    ranks, format_bytes(needed));
  }
  const UsableMemory memory = usable_memory();
  if (needed > memory.bytes) return fmt::format("{}: {}\n", memory.text(), run);
  const int64_t available = available_memory();
  if (needed <= available) return "";
  return fmt::format("{} of memory are free here now: {} beside what other programs use\n",
                     format_bytes(available), run);
}

std::string explain_json(const RunConfig& config, const StepPlan& plan, const Fit* fit,
                         std::span<const PhaseAccount> phases, const StagesAccount* stages) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson operations = OrderedJson::array();
  const std::vector<ExplainRow> rows = operation_rows(plan, false);
  for (const ExplainRow& row : rows) {
    operations.push_back({{"phase", row.phase},
                          {"layer", row.layer},
                          {"block", row.block},
                          {"operation", row.operation},
                          {"flops", row.cost.flops},
                          {"repeated_flops", row.cost.repeated_flops},
                          {"bytes", row.cost.bytes},
                          {"results", row.results},
                          {"saved_bytes", row.saved_bytes},
                          {"in_use_bytes", row.memory_bytes},
                          {"outputs", row.outputs},
                          {"types", type_texts(plan.mesh_rank().mesh, row.types)},
                          {"dims", row.labels},
                          {"sent_bytes", row.sent}});
  }
  const double tokens = tokens_of_rank(plan);
  const OrderedJson totals{
      {"parameters", plan.parameters},
      {"active_parameters", plan.active_parameters},
      {"embedding_parameters", plan.embedding_parameters},
      {"flops_per_token", plan.flops.useful() / tokens},
      {"forward_flops_per_token", plan.flops.forward / tokens},
      {"backward_flops_per_token", plan.flops.backward / tokens},
      {"repeated_flops_per_token", plan.flops.repeated / tokens},
      {"update_flops", update_flops(plan)},
      {"tokens_per_step", plan.tokens * plan.micro_batches * data_ranks(plan.mesh_rank().mesh)},
      {"parameters_on_rank", elements_on_rank(plan)},
      {"sent_bytes_per_step", sent_in_step(plan, rows)},
      {"state_bytes", plan.memory.kept_bytes},
      {"optimizer_bytes", optimizer_bytes(plan)},
      {"input_bytes", plan.input_bytes},
      {"saved_bytes", plan.memory.programs.front().saved_bytes},
      {"peak_bytes", plan.memory.arena_bytes},
      {"live_bytes", plan.memory.live_bytes},
      {"peak_operation", peak_row(rows, plan.memory)}};
  OrderedJson json{{"layout", layout_json(plan.mesh_rank())},
                   {"held", held_json(plan)},
                   {"operations", operations},
                   {"totals", totals},
                   {"memory", memory_json(plan)}};
  if (OrderedJson attention = attention_json(config); !attention.empty()) {
    json["attention"] = std::move(attention);
  }
  if (plan.mesh_rank().mesh.ranks() > 1) {
    json["overlap"] = overlap_json(overlap_account(config, plan));
  }
  if (fit != nullptr) json["fit"] = fit_json(*fit);
  if (!phases.empty()) json["phases"] = phases_json(phases);
  if (stages != nullptr) json["pipeline"] = stages_json(*stages);
  return json.dump(1) + "\n";
}

}  // namespace tessera
