#include "program/builder.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

Value Builder::add_value(std::string name, Spec spec, ValueKind kind) {
  program_.values_.push_back({std::move(name), std::move(spec), kind, Keep::no});
  return Value{static_cast<int>(program_.values_.size()) - 1};
}

Value Builder::input(std::string name, Spec spec) {
  return add_value(std::move(name), std::move(spec), ValueKind::input);
}

Value Builder::parameter(std::string name, Spec spec) {
  return add_value(std::move(name), std::move(spec), ValueKind::parameter);
}

Value Builder::state(std::string name, Spec spec) {
  return add_value(std::move(name), std::move(spec), ValueKind::state);
}

std::vector<Value> Builder::apply(std::shared_ptr<const Operation> operation,
                                  std::vector<Value> inputs) {
  const std::vector<Spec> specs = operation->infer(program_.specs(inputs));
  std::vector<Value> outputs;
  for (const Spec& spec : specs) {
    const std::string suffix = specs.size() == 1 ? "" : fmt::format(".{}", outputs.size());
    outputs.push_back(add_value(
        qualified(fmt::format("{}#{}{}", operation->name(), program_.nodes_.size(), suffix)), spec,
        ValueKind::computed));
  }
  program_.nodes_.push_back(
      {std::move(operation), std::move(inputs), outputs, block_, layer_, phase_});
  return outputs;
}

Value Builder::apply_single(std::shared_ptr<const Operation> operation, std::vector<Value> inputs) {
  const std::vector<Value> outputs = apply(std::move(operation), std::move(inputs));
  TESSERA_CHECK(outputs.size() == 1, "an operation with {} outputs where one is expected",
                outputs.size());
  return outputs[0];
}

Value Builder::main_gradient(Value value) {
  const ValueInfo& parameter = program_.info(value);
  if (parameter.kind != ValueKind::parameter) return {};
  const auto known = program_.main_gradients_.find(value.id);
  if (known != program_.main_gradients_.end()) return known->second;
  Spec spec = parameter.spec;
  spec.dtype = accumulation_dtype(spec.dtype);
  spec.distribution = spec.distribution.dual();
  const Value gradient =
      add_value("gradient:" + parameter.name, std::move(spec), ValueKind::main_gradient);
  program_.main_gradients_.emplace(value.id, gradient);
  return gradient;
}

void Builder::output(Value value) {
  if (!program_.is_output(value)) program_.outputs_.push_back(value);
}

void Builder::keep(Value value, Keep keep) {
  program_.values_[static_cast<size_t>(value.id)].keep = keep;
}

void Builder::name(Value value, std::string_view name) {
  program_.values_[static_cast<size_t>(value.id)].name = qualified(name);
}

void Builder::append(Node node) { program_.nodes_.push_back(std::move(node)); }

std::vector<Node> Builder::take_backward() {
  const auto first = program_.nodes_.begin() + program_.forward_size();
  std::vector<Node> backward(std::make_move_iterator(first),
                             std::make_move_iterator(program_.nodes_.end()));
  program_.nodes_.erase(first, program_.nodes_.end());
  return backward;
}

Builder::Scope::Scope(Builder& builder, std::string_view path, Block block, int layer)
    : builder_(builder), path_(builder.path_), block_(builder.block_), layer_(builder.layer_) {
  builder.path_ = builder.qualified(path);
  builder.block_ = block;
  builder.layer_ = layer;
}

Builder::Scope::~Scope() {
  builder_.path_ = std::move(path_);
  builder_.block_ = block_;
  builder_.layer_ = layer_;
}

Builder::Scope Builder::scope(std::string_view path, Block block) {
  return Scope(*this, path, block, layer_);
}

Builder::Scope Builder::layer_scope(std::string_view path, int layer) {
  return Scope(*this, path, block_, layer);
}

void Builder::follow(const Node& node, Phase phase) {
  block_ = node.block;
  layer_ = node.layer;
  phase_ = phase;
}

std::string Builder::qualified(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

}  // namespace tessera
