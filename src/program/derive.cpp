#include "program/derive.h"

#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

/// One axis's split of a label, as an operand has it.
struct LabelSplit {
  Axis axis;
  Pieces pieces;
  int factor = 0;
  int64_t repeats = 1;
  bool whole_dim = false;  ///< the label stands for the whole dim, with all its factors
};

/// The splits of a label, outermost first, and the operand that has them.
struct LabelOrder {
  std::vector<LabelSplit> splits;
  size_t operand = 0;
};

bool whole_dim(const std::vector<Label>& dim) { return dim.size() == 1 || dim[0].opaque; }

class Derivation {
 public:
  Derivation(const Mesh& mesh, std::string_view operation, const Labels& labels,
             std::span<const TypedOperand> inputs, const HandRule& by_hand)
      : mesh_(mesh), operation_(operation), labels_(labels), inputs_(inputs), by_hand_(by_hand) {
    TESSERA_CHECK(inputs.size() == labels.inputs.size(), "{} has {} operands and labels for {}",
                  operation, inputs.size(), labels.inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) {
      TESSERA_CHECK(static_cast<int>(labels.inputs[k].dims.size()) == inputs[k].spec.shape.rank(),
                    "{}: '{}' {} has labels for {} dims", operation, inputs[k].name,
                    inputs[k].spec.shape.text(), labels.inputs[k].dims.size());
    }
    for (const LabelledOperand& output : labels.outputs) {
      for (const auto& dim : output.dims) {
        for (const Label& label : dim) output_labels_.push_back(labels.tied(label.name));
      }
    }
  }

  std::vector<Distribution> derive() {
    view_ = common_view();
    outputs_.assign(labels_.outputs.size(), Types(mesh_.axes().size()));
    for (const Axis axis : mesh_.of_view(view_)) derive_on(axis);
    find_orders();
    std::vector<Distribution> distributions;
    for (size_t i = 0; i < outputs_.size(); ++i) distributions.push_back(ordered(i));
    return distributions;
  }

 private:
  using Types = std::vector<TypeOnAxis>;  // by axis

  // ---- the view

  /// Whether a value means the same in both views.
  bool neutral(const TypedOperand& operand) const {
    const MeshView view = operand.spec.distribution.view();
    return !operand.differentiable && std::ranges::all_of(mesh_.of_view(view), [&](Axis axis) {
      const Placement placement = operand.spec.distribution.on(axis).placement;
      return placement == Placement::invariant || placement == Placement::replicated;
    });
  }

  MeshView common_view() const {
    std::optional<size_t> first;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (neutral(inputs_[k])) continue;
      if (!first) first = k;
      if (view_of(k) != view_of(*first)) {
        throw DistributionError(fmt::format(
            "{}: '{}' is of the {} view and '{}' of the {} view; cross one of them first",
            operation_, inputs_[*first].name, view_name(*first), inputs_[k].name, view_name(k)));
      }
    }
    return inputs_.empty() ? MeshView::dense : view_of(first.value_or(0));
  }

  MeshView view_of(size_t k) const { return inputs_[k].spec.distribution.view(); }
  std::string_view view_name(size_t k) const {
    return view_of(k) == MeshView::dense ? "dense" : "expert";
  }

  // ---- one axis

  void derive_on(Axis axis) {
    Types types = types_on(axis);
    if (by_hand_) {
      if (const auto answer = answer_by_hand(axis, types)) {
        TESSERA_CHECK(answer->size() == outputs_.size(), "{}: a rule by hand gives {} types",
                      operation_, answer->size());
        for (size_t i = 0; i < outputs_.size(); ++i) at(i, axis) = (*answer)[i];
        answered_.push_back(axis);
        return;
      }
    }
    for (size_t k = 0; k < types.size(); ++k) {
      if (!labels_.inputs[k].shape_only || !types[k].split()) continue;
      if (!in_an_output(label_of(k, types[k]).name)) types[k] = replicated();
    }
    if (all_invariant(types)) return;
    refuse_invariant(axis, types);
    if (const auto split = find_split(axis, types)) {
      derive_split(axis, types, *split);
    } else {
      derive_sums(axis, types);
    }
  }

  /// What the rule by hand says. If it refuses, the message names the axis and the operands.
  std::optional<Types> answer_by_hand(Axis axis, const Types& types) const {
    try {
      return by_hand_(axis, types);
    } catch (const DistributionError& error) {
      std::vector<std::string> operands;
      for (size_t k = 0; k < types.size(); ++k) {
        operands.push_back(fmt::format("'{}' is {}", inputs_[k].name, types[k].text()));
      }
      throw DistributionError(fmt::format("{}: on {}, {}: {}", operation_, mesh_.name(axis),
                                          join(operands, ", "), error.what()));
    }
  }

  Types types_on(Axis axis) const {
    Types types;
    for (const TypedOperand& operand : inputs_) {
      const Distribution& distribution = operand.spec.distribution;
      types.push_back(distribution.view() == view_ ? distribution.on(axis) : invariant());
    }
    return types;
  }

  /// Whether an operand is the same on all ranks and it does not matter how they use it.
  bool same(size_t k, const TypeOnAxis& type) const {
    return !inputs_[k].differentiable &&
           (type.placement == Placement::invariant || type.placement == Placement::replicated);
  }

  bool all_invariant(const Types& types) const {
    for (size_t k = 0; k < types.size(); ++k) {
      if (types[k].placement != Placement::invariant && !same(k, types[k])) return false;
    }
    return true;
  }

  void refuse_invariant(Axis axis, const Types& types) const {
    for (size_t k = 0; k < types.size(); ++k) {
      if (types[k].placement != Placement::invariant || same(k, types[k])) continue;
      std::vector<std::string> others;
      for (size_t other = 0; other < types.size(); ++other) {
        if (types[other].placement == Placement::invariant) continue;
        others.push_back(
            fmt::format("'{}', which is {}", inputs_[other].name, types[other].text()));
      }
      refuse(axis, k, types,
             fmt::format("it meets {}; expected replicated (retype invariant -> replicated)",
                         join(others, " and ")));
    }
  }

  /// A split label: its name, kind and pieces, and the operand that has it.
  struct Split {
    std::string_view label;
    TypeOnAxis type;
    size_t operand;
  };

  std::optional<Split> find_split(Axis axis, const Types& types) const {
    std::optional<Split> split;
    for (size_t k = 0; k < types.size(); ++k) {
      if (!types[k].split()) continue;
      const Label& label = label_of(k, types[k]);
      if (label.whole) {
        refuse(axis, k, types,
               fmt::format("dim {} ({}) must be whole; join its pieces first", types[k].dim,
                           label.name));
      }
      const std::string_view name = labels_.tied(label.name);
      if (!split) {
        split = Split{name, types[k], k};
      } else if (split->label != name) {
        throw DistributionError(fmt::format(
            "{}: two labels are split on {}: {} of '{}' and {} of '{}'", operation_,
            mesh_.name(axis), split->label, inputs_[split->operand].name, name, inputs_[k].name));
      }
    }
    return split;
  }

  void derive_split(Axis axis, const Types& types, const Split& split) {
    for (size_t k = 0; k < types.size(); ++k) {
      const TypeOnAxis& type = types[k];
      if (has_label(labels_.inputs[k], split.label)) {
        if (type.placement == split.type.placement && type.pieces == split.type.pieces) continue;
        refuse(axis, k, types,
               fmt::format("label {} is {} in '{}'; expected the same pieces", split.label,
                           split.type.text(), inputs_[split.operand].name));
      }
      const bool counts_by_shape =
          type.placement == Placement::partial && labels_.inputs[k].shape_only;
      if (type.placement == Placement::replicated || same(k, type) || counts_by_shape) continue;
      refuse(axis, k, types,
             fmt::format("it lacks the label {}, which is split in '{}'; expected replicated",
                         split.label, inputs_[split.operand].name));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (const auto place = find_label(labels_.outputs[i], split.label)) {
        TypeOnAxis type = split.type;
        type.dim = place->first;
        type.factor = place->second;
        type.repeats = 1;
        at(i, axis) = type;
        continue;
      }
      refuse_terms_without(axis, split);
      at(i, axis) = partial();
    }
  }

  void refuse_terms_without(Axis axis, const Split& split) const {
    for (const std::vector<int>& term : labels_.terms) {
      const bool has = std::ranges::any_of(term, [&](int k) {
        return has_label(labels_.inputs[static_cast<size_t>(k)], split.label);
      });
      if (has) continue;
      throw DistributionError(
          fmt::format("{}: the sum over {} is partial on {}, and the term '{}' lacks {}, so each "
                      "rank would add "
                      "it; convert it replicated -> partial",
                      operation_, split.label, mesh_.name(axis),
                      inputs_[static_cast<size_t>(term.front())].name, split.label));
    }
  }

  /// No label is split: sums pass through, or all is replicated.
  void derive_sums(Axis axis, const Types& types) {
    const auto is_sum = [&](int k) {
      const auto index = static_cast<size_t>(k);
      return types[index].placement == Placement::partial && !labels_.inputs[index].shape_only;
    };
    std::optional<size_t> first;
    for (size_t k = 0; k < types.size(); ++k) {
      if (!is_sum(static_cast<int>(k))) continue;
      if (!first) first = k;
      if (!labels_.inputs[k].linear) {
        refuse(axis, k, types,
               "the operation is not linear in it; expected its sum taken (partial -> invariant, "
               "replicated or sharded)");
      }
    }
    for (const std::vector<int>& term : labels_.terms) {
      if (!first) break;
      std::vector<size_t> sums;
      for (const int k : term) {
        if (is_sum(k)) sums.push_back(static_cast<size_t>(k));
      }
      if (sums.size() > 1) {
        refuse(
            axis, sums[1], types,
            fmt::format("it is multiplied by '{}', which is partial too", inputs_[sums[0]].name));
      }
      if (sums.empty()) {
        refuse(axis, static_cast<size_t>(term.front()), types,
               fmt::format("it is added to '{}', which is partial; expected partial (convert "
                           "replicated -> partial)",
                           inputs_[*first].name));
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) at(i, axis) = first ? partial() : replicated();
  }

  // ---- the order of splits, over all axes

  void find_orders() {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (view_of(k) != view_) continue;
      for (size_t d = 0; d < labels_.inputs[k].dims.size(); ++d) {
        const auto& dim = labels_.inputs[k].dims[d];
        const size_t labels = dim[0].opaque ? 1 : dim.size();
        for (size_t f = 0; f < labels; ++f) note_order(k, static_cast<int>(d), f);
      }
    }
  }

  void note_order(size_t k, int dim, size_t factor) {
    const auto& labels = labels_.inputs[k].dims[static_cast<size_t>(dim)];
    const Distribution& distribution = inputs_[k].spec.distribution;
    LabelOrder order{.operand = k};
    for (const Axis axis : distribution.order(dim)) {
      const TypeOnAxis& type = distribution.on(axis);
      if (!whole_dim(labels) && type.factor != static_cast<int>(factor)) continue;
      const int64_t repeats =
          whole_dim(labels) ? type.repeats : repeats_after_outer(distribution, axis);
      order.splits.push_back({axis, type.pieces, type.factor, repeats, whole_dim(labels)});
    }
    const std::string_view label = labels_.tied(labels[factor].name);
    require_agreement(orders_.try_emplace(label, order).first->second, order, label);
    if (!whole_dim(labels)) return;
    require_agreement(whole_orders_.try_emplace(label, order).first->second, order, label);
  }

  /// Operands with one label have the same elements of it. Where it is the whole dim of both, that
  /// depends on how often the pieces repeat, too.
  void require_agreement(const LabelOrder& known, const LabelOrder& order,
                         std::string_view label) const {
    const auto agree = [](const LabelSplit& a, const LabelSplit& b) {
      return a.axis == b.axis && a.pieces == b.pieces &&
             (a.repeats == b.repeats || !a.whole_dim || !b.whole_dim);
    };
    if (std::ranges::equal(checked(known), checked(order), agree)) return;
    throw DistributionError(fmt::format(
        "{}: label {} is split in the order ({}) in '{}' and ({}) in '{}'", operation_, label,
        text(order), inputs_[order.operand].name, text(known), inputs_[known.operand].name));
  }

  /// The repeats of a split once those of the factors outside it come first, as they do in outputs:
  /// even ones that were made after it have left fewer.
  int64_t repeats_after_outer(const Distribution& distribution, Axis axis) const {
    const TypeOnAxis& type = distribution.on(axis);
    const std::span<const Axis> order = distribution.order(type.dim);
    int64_t repeats = type.repeats;
    for (auto later = std::ranges::find(order, axis) + 1; later != order.end(); ++later) {
      const TypeOnAxis& other = distribution.on(*later);
      const bool even = other.pieces.kind != PieceKind::uneven;
      const int64_t ranks = mesh_.size(*later);
      if (other.factor < type.factor && even && repeats % ranks == 0) repeats /= ranks;
    }
    return repeats;
  }

  /// The splits about which operands must agree: a rule by hand sees to those of its axes.
  std::vector<LabelSplit> checked(const LabelOrder& order) const {
    std::vector<LabelSplit> splits;
    std::ranges::copy_if(order.splits, std::back_inserter(splits), [&](const LabelSplit& split) {
      return std::ranges::find(answered_, split.axis) == answered_.end();
    });
    return splits;
  }

  std::string text(const LabelOrder& order) const {
    std::vector<std::string> axes;
    for (const LabelSplit& split : order.splits) {
      axes.push_back(fmt::format("{} {}", mesh_.name(split.axis),
                                 pieces_text(split.pieces, split.factor, split.repeats)));
    }
    return join(axes, ", ");
  }

  /// An output's types with their splits in order, outermost first.
  Distribution ordered(size_t output) {
    Distribution result(view_);
    const auto& dims = labels_.outputs[output].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      for (size_t f = 0; f < dims[d].size(); ++f) add_splits(result, output, d, f);
    }
    for (const Axis axis : mesh_.of_view(view_)) result = result.with(axis, at(output, axis));
    return result;
  }

  /// Adds the splits of one label of an output, in the order in which the operands have them.
  void add_splits(Distribution& result, size_t output, size_t dim, size_t factor) {
    const auto& labels = labels_.outputs[output].dims[dim];
    const auto known = orders_.find(labels_.tied(labels[factor].name));
    if (known == orders_.end()) return;
    for (const LabelSplit& split : known->second.splits) {
      TypeOnAxis& type = at(output, split.axis);
      const bool mine = type.split() && type.dim == static_cast<int>(dim) &&
                        (labels.size() == 1 || type.factor == static_cast<int>(factor));
      if (!mine) continue;
      if (split.whole_dim && (labels.size() == 1 || labels[factor].opaque)) {
        type.factor = split.factor;
      }
      if (split.whole_dim || split.factor == 0) {
        // What repeats within the label does so for each element of the factors outside it.
        type.repeats = extent_outside(labels, factor) * split.repeats;
      } else if (labels.size() > 1) {
        type.repeats = split.repeats;  // between the same factors
      }
      result = result.with(split.axis, type);
    }
  }

  /// The product of the extents of the factors outside one, from the operands that have them as
  /// dims of their own.
  int64_t extent_outside(const std::vector<Label>& labels, size_t factor) const {
    int64_t product = 1;
    for (size_t f = 0; f < factor; ++f) product *= extent(labels[f].name);
    return product;
  }

  int64_t extent(const std::string& label) const {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const auto& dims = labels_.inputs[k].dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d].size() == 1 && dims[d][0].name == label) {
          return inputs_[k].spec.shape[static_cast<int>(d)];
        }
      }
    }
    throw DistributionError(
        fmt::format("{}: the extent of {} is known of no operand", operation_, label));
  }

  // ---- labels

  const Label& label_of(size_t k, const TypeOnAxis& type) const {
    const auto& dims = labels_.inputs[k].dims;
    TESSERA_CHECK(type.dim < static_cast<int>(dims.size()), "{}: '{}' is split along dim {} of {}",
                  operation_, inputs_[k].name, type.dim, dims.size());
    const auto& dim = dims[static_cast<size_t>(type.dim)];
    if (whole_dim(dim)) return dim[0];
    TESSERA_CHECK(type.factor < static_cast<int>(dim.size()),
                  "{}: '{}' is split by factor {} of {}", operation_, inputs_[k].name, type.factor,
                  dim.size());
    return dim[static_cast<size_t>(type.factor)];
  }

  /// The dim and the factor of a label; none if the operand lacks it.
  std::optional<std::pair<int, int>> find_label(const LabelledOperand& operand,
                                                std::string_view label) const {
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      for (size_t f = 0; f < operand.dims[d].size(); ++f) {
        if (labels_.tied(operand.dims[d][f].name) == label) {
          return std::pair(static_cast<int>(d), static_cast<int>(f));
        }
      }
    }
    return std::nullopt;
  }
  bool has_label(const LabelledOperand& operand, std::string_view label) const {
    return find_label(operand, label).has_value();
  }
  bool in_an_output(std::string_view label) const {
    return std::ranges::find(output_labels_, labels_.tied(label)) != output_labels_.end();
  }

  TypeOnAxis& at(size_t output, Axis axis) {
    return outputs_[output][static_cast<size_t>(axis.index)];
  }

  [[noreturn]] void refuse(Axis axis, size_t k, const Types& types, std::string_view why) const {
    throw DistributionError(fmt::format("{}: '{}' is {} on {}: {}", operation_, inputs_[k].name,
                                        types[k].text(), mesh_.name(axis), why));
  }

  const Mesh& mesh_;
  std::string_view operation_;
  const Labels& labels_;
  std::span<const TypedOperand> inputs_;
  const HandRule& by_hand_;
  MeshView view_ = MeshView::dense;
  std::vector<std::string_view> output_labels_;
  std::vector<Types> outputs_;
  std::vector<Axis> answered_;  // by the rule by hand
  std::map<std::string_view, LabelOrder> orders_;
  std::map<std::string_view, LabelOrder> whole_orders_;  // of labels that stand for a whole dim
};

}  // namespace

std::vector<Distribution> derive_distributions(const Mesh& mesh, std::string_view operation,
                                               const Labels& labels,
                                               std::span<const TypedOperand> inputs,
                                               const HandRule& by_hand) {
  return Derivation(mesh, operation, labels, inputs, by_hand).derive();
}

}  // namespace tessera
