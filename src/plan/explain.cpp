#include "plan/explain.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/lifetimes.h"

namespace tessera {
namespace {

/// A node as the tables show it.
struct Row {
  std::string operation, block, phase, outputs, results;
  int layer = -1;
  Cost cost;
  int64_t saved_bytes = 0;
  int64_t memory_bytes = 0;
};

class OperationRows {
 public:
  explicit OperationRows(const StepPlan& plan)
      : program_(plan.training.program), plan_(plan), lifetimes_(program_) {
    for (size_t i = 0; i < program_.nodes().size(); ++i) rows.push_back(row(i));
  }

  std::vector<Row> rows;

 private:
  Row row(size_t index) const {
    const Node& node = program_.nodes()[index];
    const std::vector<Spec> outputs = program_.specs(node.outputs);
    Row row{.operation = std::string(node.operation->name()),
            .block = std::string(block_name(node.block)),
            .phase = std::string(phase_name(node.phase)),
            .outputs = {},
            .results = {},
            .layer = node.layer,
            .cost = node.operation->cost(program_.specs(node.inputs), outputs)};
    for (const Spec& spec : outputs) {
      row.outputs += fmt::format("{}{} {}", row.outputs.empty() ? "" : ", ", dtype_name(spec.dtype),
                                 spec.shape.text());
    }
    for (const int input : node.operation->updated_inputs()) {
      row.outputs += fmt::format("{}adds into {}", row.outputs.empty() ? "" : ", ",
                                 program_.info(node.inputs[static_cast<size_t>(input)]).name);
    }
    bool result = false;
    for (const Value output : node.outputs) {
      result = result || program_.is_output(output);
      const bool saved =
          node.phase == Phase::forward && lifetimes_.last_use(output) >= program_.forward_size();
      if (saved) row.saved_bytes += program_.spec(output).bytes();
    }
    row.results = node.phase == Phase::recompute ? "recomputed"
                  : row.saved_bytes > 0          ? "saved"
                  : result                       ? "result"
                                                 : "";
    row.memory_bytes = plan_.memory.in_use_at[index];
    return row;
  }

  const Program& program_;
  const StepPlan& plan_;
  Lifetimes lifetimes_;
};

std::string number_or_blank(double value) { return value > 0 ? format_count(value) : ""; }

std::string operations_table(const std::vector<Row>& rows, bool all_layers) {
  Table table({"phase", "layer", "block", "operation", "FLOPs", "bytes", "results", "saved",
               "in use", "outputs"});
  for (const Row& row : rows) {
    if (!all_layers && row.layer > 0) continue;
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
  std::string text = operations_table(OperationRows(plan).rows, all_layers);
  if (!all_layers && config.model.layers > 1) {
    text +=
        fmt::format("(layers 1 to {} repeat layer 0; --all shows them)\n", config.model.layers - 1);
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
  bytes("weights, gradients and optimizer", plan.state_bytes);
  bytes("inputs", plan.input_bytes);
  bytes("saved for the backward pass", plan.memory.saved_bytes);
  bytes("peak memory", plan.peak_bytes);
  text += "\n" + totals.text();
  if (plan.memory.peak_node >= 0) {
    const Node& node = plan.training.program.nodes()[static_cast<size_t>(plan.memory.peak_node)];
    text += fmt::format("the peak falls in {} of the {} pass{}\n", node.operation->name(),
                        phase_name(node.phase),
                        node.layer < 0 ? "" : fmt::format(", layer {}", node.layer));
  }
  if (plan.peak_bytes > physical_memory()) {
    text +=
        fmt::format("this machine has {}: the run does not fit\n", format_bytes(physical_memory()));
  }
  return text;
}

std::string explain_json(const RunConfig& config, const StepPlan& plan) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson operations = OrderedJson::array();
  for (const Row& row : OperationRows(plan).rows) {
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
                           {"state_bytes", plan.state_bytes},
                           {"input_bytes", plan.input_bytes},
                           {"saved_bytes", plan.memory.saved_bytes},
                           {"peak_bytes", plan.peak_bytes},
                           {"peak_operation", plan.memory.peak_node}};
  return OrderedJson{{"operations", operations}, {"totals", totals}}.dump(1) + "\n";
}

}  // namespace tessera
