#include "program/derive.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "program/axis_rule.h"
#include "program/labelled_operation.h"
#include "program/split_orders.h"

namespace tessera {
namespace {

MeshView view_of(const TypedOperand& operand) { return operand.spec.distribution.view(); }

std::string_view view_name(const TypedOperand& operand) {
  return view_of(operand) == MeshView::dense ? "dense" : "expert";
}

/// Returns whether an input means the same in both views.
bool is_neutral(const LabelledOperation& operation, size_t input) {
  const TypedOperand& operand = operation.inputs[input];
  return std::ranges::all_of(operation.mesh.of_view(view_of(operand)), [&](Axis axis) {
    return operation.same_on_all(input, operand.spec.distribution.on(axis));
  });
}

/// Returns the view of all inputs, except those that mean the same in both. Throws if it is not one
/// view.
MeshView common_view(const LabelledOperation& operation) {
  const std::span<const TypedOperand> inputs = operation.inputs;
  std::optional<size_t> first;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (is_neutral(operation, k)) continue;
    if (!first) first = k;
    if (view_of(inputs[k]) == view_of(inputs[*first])) continue;
    throw DistributionError(
        fmt::format("{}: '{}' is of the {} view and '{}' of the {} view; cross one of them first",
                    operation.name, inputs[*first].name, view_name(inputs[*first]), inputs[k].name,
                    view_name(inputs[k])));
  }
  return inputs.empty() ? MeshView::dense : view_of(inputs[first.value_or(0)]);
}

std::vector<TypeOnAxis> input_types(const LabelledOperation& operation, MeshView view, Axis axis) {
  std::vector<TypeOnAxis> types;
  for (const TypedOperand& input : operation.inputs) {
    types.push_back(view_of(input) == view ? input.spec.distribution.on(axis) : invariant());
  }
  return types;
}

/// Returns the result of the hand-written rule. If it refuses, the message names the axis and the
/// operands.
std::optional<std::vector<TypeOnAxis>> answer_by_hand(const HandRule& by_hand,
                                                      const LabelledOperation& operation, Axis axis,
                                                      const std::vector<TypeOnAxis>& inputs) {
  if (!by_hand) return std::nullopt;
  try {
    auto answer = by_hand(axis, inputs);
    TESSERA_CHECK(!answer || answer->size() == operation.labels.outputs.size(),
                  "{}: a rule by hand gives {} types", operation.name, answer->size());
    return answer;
  } catch (const DistributionError& error) {
    std::vector<std::string> operands;
    for (size_t k = 0; k < inputs.size(); ++k) {
      operands.push_back(
          fmt::format("'{}' is {}", operation.inputs[k].name, inputs[k].text(operation.mesh)));
    }
    throw DistributionError(fmt::format("{}: on {}, {}: {}", operation.name,
                                        operation.mesh.name(axis), join(operands, ", "),
                                        error.what()));
  }
}

}  // namespace

std::vector<Distribution> derive_distributions(const Mesh& mesh, std::string_view operation,
                                               const Labels& labels,
                                               std::span<const TypedOperand> inputs,
                                               const HandRule& by_hand) {
  const LabelledOperation labelled{mesh, operation, labels, inputs};
  labelled.check_labels();
  const MeshView view = common_view(labelled);
  // By output and axis.
  std::vector<std::vector<TypeOnAxis>> outputs(labels.outputs.size(),
                                               std::vector<TypeOnAxis>(mesh.axes().size()));
  std::vector<Axis> answered;  // by the hand-written rule
  for (const Axis axis : mesh.of_view(view)) {
    const std::vector<TypeOnAxis> types = input_types(labelled, view, axis);
    auto on_axis = answer_by_hand(by_hand, labelled, axis, types);
    if (on_axis) {
      answered.push_back(axis);
    } else {
      on_axis = derive_on_axis(labelled, axis, types);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i][static_cast<size_t>(axis.index)] = (*on_axis)[i];
    }
  }
  const SplitOrders orders(labelled, view, answered);
  std::vector<Distribution> distributions;
  for (size_t i = 0; i < outputs.size(); ++i) {
    distributions.push_back(orders.ordered(i, outputs[i]));
  }
  return distributions;
}

}  // namespace tessera
