#include "plan/explain_rows.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/text.h"
#include "engine/action.h"
#include "program/label_rules.h"
#include "program/program.h"

namespace tessera {
namespace {

std::map<std::string, double> sent_by_axes(const Mesh& mesh, const Cost& cost) {
  std::map<std::string, double> sent;
  for (const WireBytes& wire : cost.wire) {
    std::vector<std::string> names;
    for (const Axis axis : wire.axes) names.push_back(mesh.name(axis));
    sent[join(names, "+")] += wire.bytes;
  }
  return sent;
}

ExplainRow row_of(const StepPlan& plan, const Program& program, int program_index, int node_index) {
  const ProgramMemory& memory = plan.memory.programs[static_cast<size_t>(program_index)];
  const Node& node = program.nodes()[static_cast<size_t>(node_index)];
  const std::vector<Spec> outputs = program.specs(node.outputs);
  ExplainRow row{.program = program_index,
                 .node = node_index,
                 .operation = std::string(node.operation->name()),
                 .block = std::string(word(node.block)),
                 .phase = std::string(word(node.phase)),
                 .outputs = {},
                 .results = {},
                 .labels = node.operation->labels(program.specs(node.inputs)),
                 .labels_decide = labels_decide(program, node),
                 .types = {},
                 .layer = node.layer,
                 .cost = node_cost(program, node),
                 .sent = {}};
  row.sent = sent_by_axes(program.mesh(), row.cost);
  for (const Spec& spec : outputs) {
    row.types.push_back(spec.distribution);
    row.outputs += fmt::format("{}{} {}", row.outputs.empty() ? "" : ", ", dtype_name(spec.dtype),
                               spec.shape.text());
  }
  const std::vector<int> updated = node.operation->updated_inputs();
  constexpr size_t kNamed = 1;  // only the first is named; the others are counted
  for (size_t i = 0; i < std::min(updated.size(), kNamed); ++i) {
    row.outputs += fmt::format("{}adds into {}", row.outputs.empty() ? "" : ", ",
                               program.info(node.inputs[static_cast<size_t>(updated[i])]).name);
  }
  if (updated.size() > kNamed) row.outputs += fmt::format(" and {} more", updated.size() - kNamed);
  bool has_result = false;
  for (const Value output : node.outputs) {
    has_result = has_result || program.is_output(output);
    if (memory.saved[static_cast<size_t>(output.id)]) {
      row.saved_bytes += program.spec(output).bytes();
    }
  }
  row.results = node.phase == Phase::recompute ? "recomputed"
                : row.saved_bytes > 0          ? "saved"
                : has_result                   ? "result"
                                               : "";
  row.memory_bytes = memory.live_bytes[static_cast<size_t>(node_index)];
  return row;
}

std::vector<int> all_nodes(const Program& program) {
  std::vector<int> nodes(program.nodes().size());
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

}  // namespace

std::vector<ExplainRow> operation_rows(const StepPlan& plan, bool with_views) {
  const StepPrograms& programs = plan.programs;
  const std::vector<const Program*> list = programs.list();
  std::vector<int> order{programs.start_number()};
  for (int chunk = 0; chunk < programs.start_number(); ++chunk) order.push_back(chunk);
  order.push_back(programs.update_number());
  std::vector<ExplainRow> rows;
  for (const int program_index : order) {
    const Program& program = *list[static_cast<size_t>(program_index)];
    for (const int node :
         with_views ? all_nodes(program) : segment_nodes(program, Segment::whole)) {
      rows.push_back(row_of(plan, program, program_index, node));
    }
  }
  return rows;
}

double total_bytes(const std::map<std::string, double>& sent) {
  double sum = 0;
  for (const auto& [axes, bytes] : sent) sum += bytes;
  return sum;
}

std::map<std::string, double> sent_in_step(const StepPlan& plan,
                                           const std::vector<ExplainRow>& rows) {
  std::map<std::string, double> sent;
  for (const ExplainRow& row : rows) {
    const bool is_chunk = row.program < plan.programs.start_number();
    for (const auto& [axes, bytes] : row.sent) {
      sent[axes] += bytes * static_cast<double>(is_chunk ? plan.micro_batches : 1);
    }
  }
  return sent;
}

}  // namespace tessera
