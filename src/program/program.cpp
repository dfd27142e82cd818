#include "program/program.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {
const ValueInfo& Program::info(Value value) const {
  TESSERA_CHECK(value.id >= 0 && value.id < static_cast<int>(values_.size()),
                "value {} is not one of the program's {} values", value.id, values_.size());
  return values_[static_cast<size_t>(value.id)];
}

int Program::forward_size() const {
  const auto end_of_forward =
      std::ranges::find_if(nodes_, [](const Node& node) { return node.phase != Phase::forward; });
  return static_cast<int>(end_of_forward - nodes_.begin());
}

const std::string& Program::name_of(const Node& node) const {
  return info(node.outputs.empty() ? node.inputs.front() : node.outputs.front()).name;
}

bool Program::is_output(Value value) const {
  return std::ranges::find(outputs_, value) != outputs_.end();
}

Value Program::base(Value value) const {
  const std::optional<ViewOf>& view = info(value).view;
  return view ? view->base : value;
}

Value Program::main_gradient(Value parameter) const {
  const auto found = main_gradients_.find(parameter.id);
  if (found != main_gradients_.end()) return found->second;
  const ValueInfo& part = info(parameter);
  if (!part.view) return {};
  // Views of the same memory may have different types, and one of them has the main gradient.
  for (const auto& [id, gradient] : main_gradients_) {
    const ValueInfo& owner = values_[static_cast<size_t>(id)];
    if (owner.view == part.view && owner.spec.shape == part.spec.shape) return gradient;
  }
  return {};
}

Value Program::find(std::string_view name) const {
  const auto found = std::ranges::find(values_, name, &ValueInfo::name);
  TESSERA_CHECK(found != values_.end(), "no value is named {}", name);
  return Value{static_cast<int>(found - values_.begin())};
}

void Program::reorder(std::span<const int> order) {
  std::vector<Node> nodes;
  std::vector<bool> is_taken(nodes_.size(), false);
  std::vector<bool> is_unmade(values_.size(), false);
  for (const Node& node : nodes_) {
    for (const Value output : node.outputs) is_unmade[static_cast<size_t>(output.id)] = true;
  }
  for (const int index : order) {
    TESSERA_CHECK(index >= 0 && index < std::ssize(nodes_) && !is_taken[static_cast<size_t>(index)],
                  "node {} of {} is in the new order twice, or is none", index, nodes_.size());
    is_taken[static_cast<size_t>(index)] = true;
    const Node& node = nodes.emplace_back(std::move(nodes_[static_cast<size_t>(index)]));
    for (const Value input : node.inputs) {
      TESSERA_CHECK(!input || !is_unmade[static_cast<size_t>(input.id)],
                    "{} is used before it is made in the new order of nodes", info(input).name);
    }
    for (const Value output : node.outputs) is_unmade[static_cast<size_t>(output.id)] = false;
  }
  TESSERA_CHECK(nodes.size() == nodes_.size(), "{} of {} nodes in the new order", nodes.size(),
                nodes_.size());
  nodes_ = std::move(nodes);
}

std::vector<Spec> Program::specs(std::span<const Value> values) const {
  std::vector<Spec> result;
  result.reserve(values.size());
  for (const Value value : values) result.push_back(spec(value));
  return result;
}

std::vector<Spec> expected_specs(const Program& program, std::span<const Value> values) {
  std::vector<Spec> specs = program.specs(values);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<Rows>& rows = program.info(values[i]).rows;
    if (rows) specs[i].shape = specs[i].shape.with_dim(0, rows->expected);
  }
  return specs;
}

Cost node_cost(const Program& program, const Node& node) {
  return node.operation->cost(expected_specs(program, node.inputs),
                              expected_specs(program, node.outputs));
}

}  // namespace tessera
