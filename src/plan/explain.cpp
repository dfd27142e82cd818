#include "plan/explain.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/physical_memory.h"
#include "base/text.h"
#include "config/mesh_of.h"
#include "engine/action.h"

namespace tessera {
namespace {

/// A node as the tables show it.
struct Row {
  int program = 0;
  int node = 0;
  std::string operation, block, phase, outputs, results;
  std::vector<Distribution> types;  // of the outputs
  int layer = -1;
  Cost cost;
  std::map<std::string, double> sent;  // bytes by the axes, "tensor" or "tensor+data"
  int64_t saved_bytes = 0;
  int64_t memory_bytes = 0;
};

std::map<std::string, double> sent_by_axes(const Mesh& mesh, const Cost& cost) {
  std::map<std::string, double> sent;
  for (const WireBytes& wire : cost.wire) {
    std::vector<std::string> names;
    for (const Axis axis : wire.axes) names.push_back(mesh.name(axis));
    sent[join(names, "+")] += wire.bytes;
  }
  return sent;
}

Row row_of(const StepPlan& plan, const Program& program, int number, int index) {
  const ProgramPlaces& places = plan.memory.programs[static_cast<size_t>(number)];
  const Node& node = program.nodes()[static_cast<size_t>(index)];
  const std::vector<Spec> outputs = program.specs(node.outputs);
  Row row{.program = number,
          .node = index,
          .operation = std::string(node.operation->name()),
          .block = std::string(word(node.block)),
          .phase = std::string(word(node.phase)),
          .outputs = {},
          .results = {},
          .types = {},
          .layer = node.layer,
          .cost = node.operation->cost(program.specs(node.inputs), outputs),
          .sent = {}};
  row.sent = sent_by_axes(program.mesh(), row.cost);
  for (const Spec& spec : outputs) {
    row.types.push_back(spec.distribution);
    row.outputs += fmt::format("{}{} {}", row.outputs.empty() ? "" : ", ", dtype_name(spec.dtype),
                               spec.shape.text());
  }
  const std::vector<int> updated = node.operation->updated_inputs();
  constexpr size_t kNamed = 1;  // the first represents all
  for (size_t i = 0; i < std::min(updated.size(), kNamed); ++i) {
    row.outputs += fmt::format("{}adds into {}", row.outputs.empty() ? "" : ", ",
                               program.info(node.inputs[static_cast<size_t>(updated[i])]).name);
  }
  if (updated.size() > kNamed) row.outputs += fmt::format(" and {} more", updated.size() - kNamed);
  bool result = false;
  for (const Value output : node.outputs) {
    result = result || program.is_output(output);
    if (places.saved[static_cast<size_t>(output.id)]) {
      row.saved_bytes += program.spec(output).bytes();
    }
  }
  row.results = node.phase == Phase::recompute ? "recomputed"
                : row.saved_bytes > 0          ? "saved"
                : result                       ? "result"
                                               : "";
  row.memory_bytes = places.live_bytes[static_cast<size_t>(index)];
  return row;
}

/// Returns the operations of a step's programs, for one micro-batch.
std::vector<Row> operation_rows(const StepPlan& plan) {
  const StepPrograms& programs = plan.programs;
  const std::vector<const Program*> list = programs.list();
  std::vector<int> order{programs.start_number()};
  for (int chunk = 0; chunk < programs.start_number(); ++chunk) order.push_back(chunk);
  order.push_back(programs.update_number());
  std::vector<Row> rows;
  for (const int number : order) {
    const auto p = static_cast<size_t>(number);
    for (const int node : segment_nodes(*list[p], Segment::whole)) {
      rows.push_back(row_of(plan, *list[p], number, node));
    }
  }
  return rows;
}

/// The row in which the most memory is in use, or -1 if that is in the evaluation.
int peak_row(const std::vector<Row>& rows, const MemoryPlan& plan) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.program == plan.peak_program && row.node == plan.peak_node;
  });
  return found == rows.end() ? -1 : static_cast<int>(found - rows.begin());
}

std::string number_or_blank(double value) { return value > 0 ? format_count(value) : ""; }

/// How values lie over the axes of more than one rank, each type once.
std::string types_text(const Mesh& mesh, const std::vector<Distribution>& types) {
  std::vector<std::string> texts;
  for (Distribution type : types) {
    for (const Axis axis : mesh.of_view(type.view())) {
      if (mesh.size(axis) == 1) type = type.with(axis, invariant());
    }
    const std::string text = type.text(mesh);
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
  }
  return join(texts, "; ");
}

std::vector<std::string> type_texts(const Mesh& mesh, const std::vector<Distribution>& types) {
  std::vector<std::string> texts;
  for (const Distribution& type : types) texts.push_back(type.text(mesh));
  return texts;
}

double total(const std::map<std::string, double>& sent) {
  double bytes = 0;
  for (const auto& [axes, of_axes] : sent) bytes += of_axes;
  return bytes;
}

/// The bytes that the rank sends in a step, by axes. Its model's programs run once a micro-batch.
std::map<std::string, double> sent_in_step(const StepPlan& plan, const std::vector<Row>& rows) {
  std::map<std::string, double> sent;
  for (const Row& row : rows) {
    const bool of_model = row.program < plan.programs.start_number();
    for (const auto& [axes, bytes] : row.sent) {
      sent[axes] += bytes * static_cast<double>(of_model ? plan.micro_batches : 1);
    }
  }
  return sent;
}

std::string operations_table(const StepPlan& plan, const std::vector<Row>& rows,
                             int64_t first_mixture, const ExplainOptions& options) {
  const bool several = plan.place().mesh.ranks() > 1;
  std::vector<std::string> columns{"phase", "layer",   "block", "operation", "FLOPs",
                                   "bytes", "results", "saved", "in use"};
  if (several) columns.emplace_back("sent");
  columns.emplace_back("outputs");
  if (options.types) columns.emplace_back("types");
  Table table(columns);
  for (const Row& row : rows) {
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
    const double sent = total(row.sent);
    if (several) {
      cells.push_back(sent > 0 ? format_bytes(static_cast<int64_t>(sent)) : "");
    }
    cells.push_back(row.outputs);
    if (options.types) cells.push_back(types_text(plan.place().mesh, row.types));
    table.add(cells);
  }
  return table.text();
}

int64_t elements_on_rank(const StepPlan& plan) {
  int64_t elements = 0;
  for (const ParameterSpec& spec : plan.programs.chunks.front().parameters.specs()) {
    elements += spec.piece_shape.elements();
  }
  return elements;
}

/// "rank 1 of 4 (2 tensor x 2 data)"; empty for one rank.
std::string layout_text(const MeshRank& place) {
  if (place.mesh.ranks() == 1) return "";
  return fmt::format("rank {} of {} ({})\n", place.rank, place.mesh.ranks(), place.mesh.text());
}

/// The tokens of a micro-batch for which a rank does the FLOPs: those of its data-parallel group,
/// divided by the ranks that share them.
double tokens_of_rank(const StepPlan& plan) {
  const Mesh& mesh = plan.place().mesh;
  return static_cast<double>(plan.tokens * data_ranks(mesh)) / static_cast<double>(mesh.ranks());
}

nlohmann::ordered_json layout_json(const MeshRank& place) {
  nlohmann::ordered_json axes = nlohmann::ordered_json::object();
  for (const AxisInfo& axis : place.mesh.axes()) axes[axis.name] = axis.size;
  return {{"ranks", place.mesh.ranks()}, {"rank", place.rank}, {"axes", axes}};
}

}  // namespace

std::string explain(const RunConfig& config, const StepPlan& plan, const ExplainOptions& options) {
  const std::vector<Row> rows = operation_rows(plan);
  const bool several = plan.place().mesh.ranks() > 1;
  std::string text =
      layout_text(plan.place()) + operations_table(plan, rows, config.model.dense_layers, options);
  if (!options.all_layers && config.model.layers > 1) {
    text += "(the other layers repeat these; --all shows them)\n";
  }
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
  if (several) count("parameters on this rank", static_cast<double>(elements_on_rank(plan)));
  count("FLOPs a token, forward", plan.flops.forward / tokens);
  count("FLOPs a token, backward", plan.flops.backward / tokens);
  count("FLOPs a token, repeated", plan.flops.repeated / tokens);
  const std::string of_rank = several ? ", this rank" : "";
  count(("FLOPs a step" + of_rank).c_str(), plan.flops.useful() * micro_batches);
  count("tokens a step", static_cast<double>(config.train.global_batch * config.data.context));
  for (const auto& [axes, sent] : sent_in_step(plan, rows)) {
    bytes(fmt::format("sent a step over {}", axes).c_str(), static_cast<int64_t>(sent));
  }
  bytes("weights, gradients and optimizer", plan.memory.kept_bytes);
  bytes("inputs", plan.input_bytes);
  bytes("saved for the backward pass", plan.memory.programs.front().saved_bytes);
  bytes("peak memory", plan.memory.arena_bytes);
  text += "\n" + totals.text();
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
  if (plan.memory.arena_bytes <= physical_memory()) return "";
  return fmt::format("this machine has {}: the run does not fit\n",
                     format_bytes(physical_memory()));
}

std::string explain_json(const StepPlan& plan, const Fit* fit) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson operations = OrderedJson::array();
  const std::vector<Row> rows = operation_rows(plan);
  for (const Row& row : rows) {
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
                          {"types", type_texts(plan.place().mesh, row.types)},
                          {"sent_bytes", row.sent}});
  }
  const double tokens = tokens_of_rank(plan);
  const OrderedJson totals{
      {"parameters", plan.parameters},
      {"active_parameters", plan.active_parameters},
      {"flops_per_token", plan.flops.useful() / tokens},
      {"forward_flops_per_token", plan.flops.forward / tokens},
      {"backward_flops_per_token", plan.flops.backward / tokens},
      {"repeated_flops_per_token", plan.flops.repeated / tokens},
      {"tokens_per_step", plan.tokens * plan.micro_batches * data_ranks(plan.place().mesh)},
      {"parameters_on_rank", elements_on_rank(plan)},
      {"sent_bytes_per_step", sent_in_step(plan, rows)},
      {"state_bytes", plan.memory.kept_bytes},
      {"input_bytes", plan.input_bytes},
      {"saved_bytes", plan.memory.programs.front().saved_bytes},
      {"peak_bytes", plan.memory.arena_bytes},
      {"live_bytes", plan.memory.live_bytes},
      {"peak_operation", peak_row(rows, plan.memory)}};
  OrderedJson json{
      {"layout", layout_json(plan.place())}, {"operations", operations}, {"totals", totals}};
  if (fit != nullptr) json["fit"] = fit_json(*fit);
  return json.dump(1) + "\n";
}

}  // namespace tessera
