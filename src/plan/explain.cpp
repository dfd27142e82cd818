#include "plan/explain.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/physical_memory.h"
#include "base/text.h"
#include "engine/action.h"

namespace tessera {
namespace {

/// A node as the tables show it.
struct Row {
  int program = 0;
  int node = 0;
  std::string operation, block, phase, outputs, results;
  int layer = -1;
  Cost cost;
  int64_t saved_bytes = 0;
  int64_t memory_bytes = 0;
};

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
          .layer = node.layer,
          .cost = node.operation->cost(program.specs(node.inputs), outputs)};
  for (const Spec& spec : outputs) {
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

/// Of the layers only the first of each kind, unless `all_layers`.
std::string operations_table(const std::vector<Row>& rows, int64_t first_mixture, bool all_layers) {
  Table table({"phase", "layer", "block", "operation", "FLOPs", "bytes", "results", "saved",
               "in use", "outputs"});
  for (const Row& row : rows) {
    if (!all_layers && row.layer > 0 && row.layer != first_mixture) continue;
    table.add({row.phase, row.layer < 0 ? "" : std::to_string(row.layer), row.block, row.operation,
               number_or_blank(row.cost.flops + row.cost.repeated_flops),
               format_bytes(static_cast<int64_t>(row.cost.bytes)), row.results,
               row.saved_bytes > 0 ? format_bytes(row.saved_bytes) : "",
               format_bytes(row.memory_bytes), row.outputs});
  }
  return table.text();
}

}  // namespace

std::string explain(const RunConfig& config, const StepPlan& plan, bool all_layers) {
  std::string text = operations_table(operation_rows(plan), config.model.dense_layers, all_layers);
  if (!all_layers && config.model.layers > 1) {
    text += "(the other layers repeat these; --all shows them)\n";
  }
  const auto tokens = static_cast<double>(plan.tokens);
  const int64_t micro_batches = config.train.global_batch / config.train.micro_batch;
  Table totals({"total", "value", "exactly"});
  const auto count = [&](const char* name, double value) {
    totals.add({name, format_count(value), fmt::format("{:.0f}", value)});
  };
  const auto bytes = [&](const char* name, int64_t value) {
    totals.add({name, format_bytes(value), fmt::format("{}", value)});
  };
  count("parameters", static_cast<double>(plan.parameters));
  count("active parameters a token", static_cast<double>(plan.active_parameters));
  count("FLOPs a token, forward", plan.flops.forward / tokens);
  count("FLOPs a token, backward", plan.flops.backward / tokens);
  count("FLOPs a token, repeated", plan.flops.repeated / tokens);
  count("FLOPs a step", plan.flops.useful() * static_cast<double>(micro_batches));
  count("tokens a step", tokens * static_cast<double>(micro_batches));
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

std::string explain_json(const RunConfig& config, const StepPlan& plan, const Fit* fit) {
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
                          {"outputs", row.outputs}});
  }
  const int64_t micro_batches = config.train.global_batch / config.train.micro_batch;
  const auto tokens = static_cast<double>(plan.tokens);
  const OrderedJson totals{{"parameters", plan.parameters},
                           {"active_parameters", plan.active_parameters},
                           {"flops_per_token", plan.flops.useful() / tokens},
                           {"forward_flops_per_token", plan.flops.forward / tokens},
                           {"backward_flops_per_token", plan.flops.backward / tokens},
                           {"repeated_flops_per_token", plan.flops.repeated / tokens},
                           {"tokens_per_step", plan.tokens * micro_batches},
                           {"state_bytes", plan.memory.kept_bytes},
                           {"input_bytes", plan.input_bytes},
                           {"saved_bytes", plan.memory.programs.front().saved_bytes},
                           {"peak_bytes", plan.memory.arena_bytes},
                           {"live_bytes", plan.memory.live_bytes},
                           {"peak_operation", peak_row(rows, plan.memory)}};
  OrderedJson json{{"operations", operations}, {"totals", totals}};
  if (fit != nullptr) json["fit"] = fit_json(*fit);
  return json.dump(1) + "\n";
}

}  // namespace tessera
