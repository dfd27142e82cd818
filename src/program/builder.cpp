// apply() does most of the work. For each new node it derives the distributions of the outputs,
// either by the operation itself or from its labels (derive.h), and their shapes by infer(). It
// names the outputs and notes which of them are views of an input, have gradients, or have rows
// whose number is known only at run time. main_gradient.cpp has the members for main gradients.

#include "program/builder.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns whether dim 0 of two values has the rows of one exchange.
bool share_exchange_rows(const Mesh& mesh, const Spec& a, const Spec& b) {
  if (a.shape.rank() == 0 || b.shape.rank() == 0 || a.shape[0] != b.shape[0] ||
      a.distribution.view() != b.distribution.view()) {
    return false;
  }
  return std::ranges::any_of(mesh.axes_of(a.distribution.view()), [&](Axis axis) {
    const TypeOnAxis& type_a = a.distribution.on(axis);
    const TypeOnAxis& type_b = b.distribution.on(axis);
    return type_a.placement == Placement::varying && type_a.dim == 0 &&
           type_a.pieces.kind == PieceKind::exchange && type_a == type_b;
  });
}

/// Returns the Rows of an input that has the same rows as a computed value; none without such one.
std::optional<Rows> inherited_rows(const Program& program, std::span<const Value> inputs,
                                   const Spec& spec) {
  for (const Value input : inputs) {
    const ValueInfo& info = program.info(input);
    if (info.rows && share_exchange_rows(program.mesh(), info.spec, spec)) return info.rows;
  }
  return std::nullopt;
}

}  // namespace

Value Builder::add_value(std::string name, Spec spec, ValueKind kind) {
  ValueInfo info{.name = std::move(name), .spec = std::move(spec), .kind = kind};
  info.differentiable =
      is_floating(info.spec.dtype) && (kind == ValueKind::parameter || kind == ValueKind::input);
  program_.values_.push_back(std::move(info));
  return Value{static_cast<int>(program_.values_.size()) - 1};
}

void Builder::grow(Value value, int64_t elements) {
  ValueInfo& info = program_.values_[static_cast<size_t>(value.id)];
  TESSERA_CHECK(info.kind != ValueKind::computed && info.spec.shape.rank() == 1 &&
                    !program_.main_gradients_.contains(value.id),
                "{} is not a declared flat value whose size nothing has used", info.name);
  info.spec.shape = info.spec.shape.with_dim(0, info.spec.shape[0] + elements);
}

std::vector<Value> Builder::apply(std::shared_ptr<const Operation> operation,
                                  std::vector<Value> inputs) {
  for (const Value input : inputs) refuse_replaced(operation->name(), input);
  const std::vector<Spec> input_specs = program_.specs(inputs);
  // Neither types nor shapes need the other, so the order only decides which error comes first. On
  // several ranks, wrong types also make the shapes of one rank wrong, and type errors say more.
  const bool types_first = program_.mesh().ranks() > 1;
  std::vector<Distribution> distributions;
  if (types_first) distributions = distributions_of(*operation, inputs, input_specs);
  std::vector<Spec> specs = operation->infer(input_specs);
  if (!types_first) distributions = distributions_of(*operation, inputs, input_specs);
  TESSERA_CHECK(distributions.size() == specs.size(), "{} has {} outputs and labels for {}",
                operation->name(), specs.size(), distributions.size());
  for (size_t i = 0; i < specs.size(); ++i) specs[i].distribution = distributions[i];
  const bool differentiable =
      std::ranges::any_of(inputs, [&](Value value) { return program_.info(value).differentiable; });
  std::vector<Value> outputs;
  for (const Spec& spec : specs) {
    const std::string suffix = specs.size() == 1 ? "" : fmt::format(".{}", outputs.size());
    outputs.push_back(add_value(
        qualified(fmt::format("{}#{}{}", operation->name(), program_.nodes_.size(), suffix)), spec,
        ValueKind::computed));
    info(outputs.back()).differentiable = differentiable && is_floating(spec.dtype);
    info(outputs.back()).rows = inherited_rows(program_, inputs, spec);
    info(outputs.back()).has_run_time_rows =
        has_rows_of_inputs(*operation, inputs, input_specs, outputs.size() - 1);
    note_view(*operation, static_cast<int>(outputs.size()) - 1, inputs, outputs.back());
  }
  program_.nodes_.push_back(
      {std::move(operation), std::move(inputs), outputs, block_, layer_, phase_});
  return outputs;
}

const Labels& Builder::labels_of(const Operation& operation, std::span<const Spec> inputs) {
  std::string text = operation.labels(inputs);
  const auto known = labels_.find(text);
  if (known != labels_.end()) return known->second;
  Labels labels = parse_labels(text);
  return labels_.emplace(std::move(text), std::move(labels)).first->second;
}

std::vector<Distribution> Builder::distributions_of(const Operation& operation,
                                                    std::span<const Value> inputs,
                                                    std::span<const Spec> specs) {
  const std::vector<int> updated = operation.updated_inputs();
  std::vector<TypedOperand> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::find(updated, static_cast<int>(i)) != updated.end()) continue;
    const ValueInfo& value = program_.info(inputs[i]);
    operands.push_back({value.name, specs[i], value.differentiable});
  }
  if (auto distributions = operation.distributions(program_.mesh(), operands)) {
    return std::move(*distributions);
  }
  for (const Spec& spec : operation.shape_operands()) operands.push_back({"shape", spec, false});
  const Labels& labels = labels_of(operation, specs);
  std::vector<Distribution> distributions = derive_distributions(
      program_.mesh(), operation.name(), labels, operands, operation.hand_rule());
  // The labels list the updated inputs after the outputs.
  const size_t outputs = distributions.size() - std::min(distributions.size(), updated.size());
  for (size_t i = 0; i < updated.size(); ++i) {
    const auto index = static_cast<size_t>(updated[i]);
    TESSERA_CHECK(outputs + i < distributions.size() && labels.outputs[outputs + i].added,
                  "{} updates {} inputs; its labels say otherwise", operation.name(),
                  updated.size());
    if (labels.outputs[outputs + i].shape_only) continue;
    if (distributions[outputs + i] == specs[index].distribution) continue;
    throw DistributionError(fmt::format(
        "{}: adds what is {} into '{}', which is {}", operation.name(),
        distributions[outputs + i].text(program_.mesh()), program_.info(inputs[index]).name,
        specs[index].distribution.text(program_.mesh())));
  }
  distributions.resize(outputs);
  return distributions;
}

bool Builder::has_rows_of_inputs(const Operation& operation, std::span<const Value> inputs,
                                 std::span<const Spec> specs, size_t output) {
  const auto marked = [&](Value input) { return program_.info(input).has_run_time_rows; };
  if (std::ranges::none_of(inputs, marked)) return false;
  const Labels& labels = labels_of(operation, specs);
  const auto rows_of = [](const LabelledOperand& operand) {
    std::vector<std::string_view> names;
    if (operand.dims.empty()) return names;
    for (const Label& label : operand.dims[0]) names.push_back(label.name);
    return names;
  };
  const std::vector<int> updated = operation.updated_inputs();
  size_t labelled = 0;  // the number of inputs so far that labels list: those that are only read
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::find(updated, static_cast<int>(i)) != updated.end()) continue;
    const LabelledOperand& operand = labels.inputs[labelled++];
    if (marked(inputs[i]) && rows_of(operand) == rows_of(labels.outputs[output])) return true;
  }
  return false;
}

void Builder::note_view(const Operation& operation, int output, std::span<const Value> inputs,
                        Value value) {
  const std::optional<View> view = operation.view(output);
  if (!view) return;
  const Value input = inputs[static_cast<size_t>(view->input)];
  const ViewOf outer = program_.info(input).view.value_or(ViewOf{.base = input});
  program_.values_[static_cast<size_t>(value.id)].view = ViewOf{
      outer.base, outer.byte_offset + view->byte_offset, view->elided ? value : outer.converted};
}

Value Builder::apply_single(std::shared_ptr<const Operation> operation, std::vector<Value> inputs) {
  const std::vector<Value> outputs = apply(std::move(operation), std::move(inputs));
  TESSERA_CHECK(outputs.size() == 1, "an operation with {} outputs where one is expected",
                outputs.size());
  return outputs[0];
}

ValueInfo& Builder::info(Value value) {
  program_.info(value);  // throws if it is no value
  return program_.values_[static_cast<size_t>(value.id)];
}

void Builder::refuse_replaced(std::string_view reader, Value value) const {
  const ValueInfo& info = program_.info(value);
  if (!info.replaced_by) return;
  const ValueInfo& replacement = program_.info(info.replaced_by);
  throw DistributionError(
      fmt::format("{}: '{}' is {}, but its memory holds '{}' now, which is {}; expected that one",
                  reader, info.name, info.spec.distribution.text(program_.mesh()), replacement.name,
                  replacement.spec.distribution.text(program_.mesh())));
}

void Builder::replace(Value value, Value replacement) {
  const ViewOf replaced = program_.info(value).view.value_or(ViewOf{.base = value});
  const int64_t end = replaced.byte_offset + program_.spec(value).bytes();
  TESSERA_CHECK(program_.base(replacement) == replaced.base,
                "'{}' does not lie in the memory of '{}'", program_.info(replacement).name,
                program_.info(value).name);
  for (size_t id = 0; id < program_.values_.size(); ++id) {
    ValueInfo& info = program_.values_[id];
    const Value candidate{static_cast<int>(id)};
    const ViewOf view = info.view.value_or(ViewOf{.base = candidate});
    const bool overlaps = view.base == replaced.base && view.byte_offset < end &&
                          replaced.byte_offset < view.byte_offset + info.spec.bytes();
    if (!overlaps || candidate == replacement || info.replaced_by) continue;
    info.replaced_by = replacement;
    if (program_.is_output(candidate)) refuse_replaced("output", candidate);
  }
}

void Builder::output(Value value) {
  refuse_replaced("output", value);
  if (!program_.is_output(value)) program_.outputs_.push_back(value);
}

void Builder::set_rows(Value value, Rows rows) {
  info(value).rows = std::move(rows);
  mark_run_time_rows(value);
}

void Builder::rewrite_backward(const std::function<std::vector<Value>(const Node&)>& inputs_of) {
  const auto first = program_.nodes_.begin() + program_.forward_size();
  std::vector<Node> backward(std::make_move_iterator(first),
                             std::make_move_iterator(program_.nodes_.end()));
  program_.nodes_.erase(first, program_.nodes_.end());
  uses_ = nullptr;
  for (Node& node : backward) {
    const std::vector<Value> inputs = inputs_of(node);
    TESSERA_CHECK(inputs.size() == node.inputs.size(), "{} inputs for {} of {}", inputs.size(),
                  node.inputs.size(), node.operation->name());
    for (size_t i = 0; i < inputs.size(); ++i) refuse_other_spec(node, node.inputs[i], inputs[i]);
    node.inputs = inputs;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      note_view(*node.operation, static_cast<int>(i), node.inputs, node.outputs[i]);
    }
    program_.nodes_.push_back(std::move(node));
  }
}

void Builder::refuse_other_spec(const Node& node, Value expected, Value input) const {
  if (input == expected) return;  // accepted before, by apply()
  refuse_replaced(node.operation->name(), input);
  const ValueInfo& replaced = program_.info(expected);
  const ValueInfo& given = program_.info(input);
  if (replaced.spec == given.spec) return;
  const auto text = [&](const Spec& spec) {
    return fmt::format("{} {} and {}", dtype_name(spec.dtype), spec.shape.text(),
                       spec.distribution.text(program_.mesh()));
  };
  throw DistributionError(fmt::format("{}: '{}' stands in the place of '{}' and is {}; expected {}",
                                      node.operation->name(), given.name, replaced.name,
                                      text(given.spec), text(replaced.spec)));
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

void Builder::enter_block_of(const Node& node, Phase phase) {
  block_ = node.block;
  layer_ = node.layer;
  phase_ = phase;
}

std::string Builder::qualified(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

}  // namespace tessera
