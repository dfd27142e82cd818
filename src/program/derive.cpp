// The rule for the distributions of an operation's outputs. It takes one axis of the mesh after the
// other: a hand-written rule of the operation answers if there is one, and otherwise AxisRule, from
// the labels of the dims. Then the types on all axes become one Distribution for each output, in
// the order in which the axes split each label (split_orders.h).
//
// AxisRule applies these rules on each axis of the operands' view:
// 1. Invariant operands combine with invariant ones only, and give invariant outputs. An operand
//    without gradient that is the same on all ranks counts as either, invariant or replicated.
// 2. A label that is split in one operand is split into the same pieces in all operands that have
//    it. Operands that lack it are replicated.
// 3. An output that has a split label is split there. An output that lacks it is a sum over the
//    label, so it is partial; then every term must have the label.
// 4. Partial operands are allowed only where the operation is linear in them (the mark `~`): at
//    most one in a product, and one in each term of a sum. The other operands are replicated.
// 5. A label marked whole (`!`) is not split.
//
// For example, the feed-forward block on the tensor axis, with the labels `~t i, ~o i -> t o` of a
// linear map (labels.h explains the marks):
//
//   gate and up: t i replicated, o i split along o -> t o split along o
//   down:        t i and o i both split along i    -> t o partial

#include "program/derive.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "program/labelled_operation.h"
#include "program/split_orders.h"

namespace tessera {
namespace {

/// The label that an axis splits, with its type, and the first input that has it.
struct LabelOnAxis {
  std::string_view label;
  TypeOnAxis type;
  size_t input;
};

/// Rules 1 to 5 above, on one axis. outputs() returns the types of the outputs
/// for those of the inputs, or throws DistributionError. Examples, for `~t i, ~o i -> t o`:
///
///   t sharded, the weight replicated -> t o is sharded along t
///   i sharded in both                -> t o is partial
///   the input partial                -> t o is partial
class AxisRule {
 public:
  AxisRule(const LabelledOperation& operation, Axis axis, const std::vector<TypeOnAxis>& inputs)
      : operation_(operation), labels_(operation.labels), axis_(axis), types_(inputs) {
    for (size_t k = 0; k < types_.size(); ++k) {
      // An operand that only lends its shape splits no label, unless an output has the label.
      if (!labels_.inputs[k].shape_only || !types_[k].split()) continue;
      if (!operation.an_output_has_label(operation.split_label(k, types_[k]).name)) {
        types_[k] = replicated();
      }
    }
  }

  std::vector<TypeOnAxis> outputs() const {
    if (all_invariant()) return same_for_all(invariant());
    refuse_invariant();
    if (const auto split = find_split()) return split_outputs(*split);
    return same_for_all(has_sums() ? partial() : replicated());
  }

 private:
  std::vector<TypeOnAxis> same_for_all(const TypeOnAxis& type) const {
    return std::vector<TypeOnAxis>(labels_.outputs.size(), type);
  }

  // ---- rule 1: invariant inputs

  bool all_invariant() const {
    for (size_t k = 0; k < types_.size(); ++k) {
      if (types_[k].placement != Placement::invariant && !is_neutral(k)) return false;
    }
    return true;
  }

  void refuse_invariant() const {
    for (size_t k = 0; k < types_.size(); ++k) {
      if (types_[k].placement != Placement::invariant || is_neutral(k)) continue;
      std::vector<std::string> others;
      for (size_t other = 0; other < types_.size(); ++other) {
        if (types_[other].placement == Placement::invariant) continue;
        others.push_back(fmt::format("'{}', which is {}", input_name(other),
                                     types_[other].text(&operation_.mesh)));
      }
      refuse(k, fmt::format("it meets {}; expected replicated (retype invariant -> replicated)",
                            join(others, " and ")));
    }
  }

  // ---- rules 2, 3 and 5: split labels

  /// Returns the only label that inputs split on this axis, or none. Throws if there are two.
  std::optional<LabelOnAxis> find_split() const {
    std::optional<LabelOnAxis> split;
    for (size_t k = 0; k < types_.size(); ++k) {
      if (!types_[k].split()) continue;
      const Label& label = operation_.split_label(k, types_[k]);
      if (label.whole) {
        refuse(k, fmt::format("dim {} ({}) must be whole; join its pieces first", types_[k].dim,
                              label.name));
      }
      if (may_cut_elements(operation_, k, types_[k])) refuse_cuts(k, label.name);
      const std::string_view name = labels_.tied(label.name);
      if (!split) {
        split = LabelOnAxis{name, types_[k], k};
      } else if (split->label != name) {
        throw DistributionError(fmt::format(
            "{}: two labels are split on {}: {} of '{}' and {} of '{}'", operation_.name,
            axis_name(), split->label, input_name(split->input), name, input_name(k)));
      }
    }
    return split;
  }

  [[noreturn]] void refuse_cuts(size_t k, std::string_view label) const {
    std::vector<std::string> names;
    for (const Label& factor : labels_.inputs[k].dims[static_cast<size_t>(types_[k].dim)]) {
      names.push_back(factor.name);
    }
    refuse(k, fmt::format("dim {} is ({}), and such pieces may cut an element of {}; expected "
                          "consecutive pieces, one a rank",
                          types_[k].dim, join(names, " "), label));
  }

  /// Returns the outputs' types: split along the label, or partial in an output without it.
  std::vector<TypeOnAxis> split_outputs(const LabelOnAxis& split) const {
    for (size_t k = 0; k < types_.size(); ++k) require_fit(k, split);
    std::vector<TypeOnAxis> outputs;
    for (const LabelledOperand& output : labels_.outputs) {
      if (const auto index = operation_.find_label(output, split.label)) {
        TypeOnAxis type = split.type;
        type.dim = index->dim;
        type.factor = index->factor;
        type.repeats = 1;
        type.pieces = pieces_of_output(split, output, *index);
        outputs.push_back(type);
        continue;
      }
      refuse_terms_without(split);
      outputs.push_back(partial());
    }
    return outputs;
  }

  /// Returns the pieces of the label in an output, from the first input that determines them.
  Pieces pieces_of_output(const LabelOnAxis& split, const LabelledOperand& output,
                          LabelIndex index) const {
    for (size_t k = 0; k < types_.size(); ++k) {
      if (!types_[k].split()) continue;
      auto pieces = pieces_in(operation_, k, axis_, types_[k], output, index);
      if (pieces) return std::move(*pieces);
    }
    refuse(split.input,
           fmt::format("its sizes count elements of dim {}, and in a result {} has other labels "
                       "inside it, whose extents are known of no operand; expected even pieces",
                       split.type.dim, split.label));
  }

  /// Throws if an input with the label has other pieces, or one without it is not replicated.
  void require_fit(size_t k, const LabelOnAxis& split) const {
    const TypeOnAxis& type = types_[k];
    if (const auto index = operation_.find_label(labels_.inputs[k], split.label)) {
      const auto pieces =
          pieces_in(operation_, split.input, axis_, split.type, labels_.inputs[k], *index);
      const Pieces& expected = pieces ? *pieces : split.type.pieces;
      if (type.placement == split.type.placement && type.pieces == expected) return;
      refuse(k, fmt::format("label {} is {} in '{}'; expected the same pieces", split.label,
                            split.type.text(&operation_.mesh), input_name(split.input)));
    }
    const bool counts_by_shape =
        type.placement == Placement::partial && labels_.inputs[k].shape_only;
    if (type.placement == Placement::replicated || is_neutral(k) || counts_by_shape) return;
    refuse(k, fmt::format("it lacks the label {}, which is split in '{}'; expected replicated",
                          split.label, input_name(split.input)));
  }

  /// Throws if a term lacks the label, because each rank would add that term to its partial sum.
  void refuse_terms_without(const LabelOnAxis& split) const {
    for (const std::vector<int>& term : labels_.terms) {
      const bool has = std::ranges::any_of(term, [&](int k) {
        return operation_.has_label(labels_.inputs[static_cast<size_t>(k)], split.label);
      });
      if (has) continue;
      throw DistributionError(
          fmt::format("{}: the sum over {} is partial on {}, and the term '{}' lacks {}, so each "
                      "rank would add it; convert it replicated -> partial",
                      operation_.name, split.label, axis_name(),
                      input_name(static_cast<size_t>(term.front())), split.label));
    }
  }

  // ---- rule 4: sums that have not been taken

  /// Returns whether an input is partial and the operation reads its values, not only its shape.
  bool is_sum(size_t k) const {
    return types_[k].placement == Placement::partial && !labels_.inputs[k].shape_only;
  }

  /// Returns whether an input is partial. Throws unless the operation is linear in all such inputs.
  bool has_sums() const {
    std::optional<size_t> first;
    for (size_t k = 0; k < types_.size(); ++k) {
      if (!is_sum(k)) continue;
      if (!first) first = k;
      if (!labels_.inputs[k].linear) {
        refuse(k,
               "the operation is not linear in it; expected its sum taken (partial -> invariant, "
               "replicated or sharded)");
      }
    }
    if (!first) return false;
    for (const std::vector<int>& term : labels_.terms) require_one_sum(term, *first);
    return true;
  }

  /// Throws unless exactly one factor of a term is partial.
  void require_one_sum(const std::vector<int>& term, size_t other_sum) const {
    std::vector<size_t> sums;
    for (const int k : term) {
      if (is_sum(static_cast<size_t>(k))) sums.push_back(static_cast<size_t>(k));
    }
    if (sums.size() > 1) {
      refuse(sums[1],
             fmt::format("it is multiplied by '{}', which is partial too", input_name(sums[0])));
    }
    if (sums.empty()) {
      refuse(static_cast<size_t>(term.front()),
             fmt::format("it is added to '{}', which is partial; expected partial (convert "
                         "replicated -> partial)",
                         input_name(other_sum)));
    }
  }

  // ---- inputs

  /// Returns whether invariant and replicated mean the same for an input.
  bool is_neutral(size_t k) const { return operation_.is_neutral(k, types_[k]); }
  const std::string& input_name(size_t k) const { return operation_.inputs[k].name; }
  std::string axis_name() const { return std::string(operation_.mesh.name(axis_)); }

  [[noreturn]] void refuse(size_t k, std::string_view why) const {
    throw DistributionError(fmt::format("{}: '{}' is {} on {}: {}", operation_.name, input_name(k),
                                        types_[k].text(&operation_.mesh), axis_name(), why));
  }

  const LabelledOperation& operation_;
  const Labels& labels_;
  Axis axis_;
  std::vector<TypeOnAxis> types_;  // of the inputs
};

MeshView view_of(const TypedOperand& operand) { return operand.spec.distribution.view(); }

std::string_view view_name(const TypedOperand& operand) {
  return view_of(operand) == MeshView::dense ? "dense" : "expert";
}

/// Returns whether an input means the same in both views of the mesh: it has no gradient, and all
/// ranks hold the same.
bool is_neutral_in_view(const LabelledOperation& operation, size_t input) {
  const TypedOperand& operand = operation.inputs[input];
  return std::ranges::all_of(operation.mesh.axes_of(view_of(operand)), [&](Axis axis) {
    return operation.is_neutral(input, operand.spec.distribution.on(axis));
  });
}

/// Returns the view of all inputs that are not neutral. Throws if their views differ.
MeshView common_view(const LabelledOperation& operation) {
  const std::span<const TypedOperand> inputs = operation.inputs;
  std::optional<size_t> first;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (is_neutral_in_view(operation, k)) continue;
    if (!first) first = k;
    if (view_of(inputs[k]) == view_of(inputs[*first])) continue;
    throw DistributionError(
        fmt::format("{}: '{}' is of the {} view and '{}' of the {} view; cross one of them first",
                    operation.name, inputs[*first].name, view_name(inputs[*first]), inputs[k].name,
                    view_name(inputs[k])));
  }
  return inputs.empty() ? MeshView::dense : view_of(inputs[first.value_or(0)]);
}

/// Returns the inputs' types on an axis of `view`. An input of the other view is neutral, and then
/// invariant() stands for it.
std::vector<TypeOnAxis> input_types(const LabelledOperation& operation, MeshView view, Axis axis) {
  std::vector<TypeOnAxis> types;
  for (const TypedOperand& input : operation.inputs) {
    types.push_back(view_of(input) == view ? input.spec.distribution.on(axis) : invariant());
  }
  return types;
}

/// Returns the result of the hand-written rule. Puts axis and operands before its error message.
std::optional<std::vector<TypeOnAxis>> answer_by_hand(const HandRule& hand_rule,
                                                      const LabelledOperation& operation, Axis axis,
                                                      const std::vector<TypeOnAxis>& inputs) {
  if (!hand_rule) return std::nullopt;
  try {
    auto answer = hand_rule(axis, inputs);
    TESSERA_CHECK(!answer || answer->size() == operation.labels.outputs.size(),
                  "{}: a rule by hand gives {} types", operation.name, answer->size());
    return answer;
  } catch (const DistributionError& error) {
    std::vector<std::string> operands;
    for (size_t k = 0; k < inputs.size(); ++k) {
      operands.push_back(
          fmt::format("'{}' is {}", operation.inputs[k].name, inputs[k].text(&operation.mesh)));
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
                                               const HandRule& hand_rule) {
  const LabelledOperation labelled{mesh, operation, labels, inputs};
  labelled.check_labels();
  const MeshView view = common_view(labelled);
  // The types by output and by axis.
  std::vector<std::vector<TypeOnAxis>> outputs(labels.outputs.size(),
                                               std::vector<TypeOnAxis>(mesh.axes().size()));
  std::vector<Axis> answered;  // by the hand-written rule
  for (const Axis axis : mesh.axes_of(view)) {
    const std::vector<TypeOnAxis> types = input_types(labelled, view, axis);
    auto on_axis = answer_by_hand(hand_rule, labelled, axis, types);
    if (on_axis) {
      answered.push_back(axis);
    } else {
      on_axis = AxisRule(labelled, axis, types).outputs();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i][static_cast<size_t>(axis.index)] = (*on_axis)[i];
    }
  }
  return in_split_order(labelled, view, answered, outputs);
}

}  // namespace tessera
