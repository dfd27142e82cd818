#include "program/node_cost.h"

#include "program/operation.h"

namespace tessera {
namespace {

std::vector<Spec> expected_specs(const Program& program, std::span<const Value> values) {
  std::vector<Spec> specs = program.specs(values);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<Rows>& rows = program.info(values[i]).rows;
    if (rows) specs[i].shape = specs[i].shape.with_dim(0, rows->expected);
  }
  return specs;
}

}  // namespace

Cost node_cost(const Program& program, const Node& node) {
  return node.operation->cost(expected_specs(program, node.inputs),
                              expected_specs(program, node.outputs));
}

}  // namespace tessera
