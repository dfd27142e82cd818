// If several axes split a dim, their order says which elements a rank has: splits of tokens over
// data and then context give other elements than context and then data. SplitOrders reads from the
// inputs the order in which axes split each label, and gives it to the outputs. A label names a dim
// or one of its factors (labels.h).

#include "program/split_orders.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/text.h"
#include "comm/piece_indices.h"

namespace tessera {
namespace {

TypeOnAxis& on(std::vector<TypeOnAxis>& types, Axis axis) {
  return types[static_cast<size_t>(axis.index)];
}

/// The order in which axes split each label of an operation's inputs.
class SplitOrders {
 public:
  SplitOrders(const LabelledOperation& operation, MeshView view, std::span<const Axis> hand_ruled)
      : operation_(operation), view_(view), hand_ruled_(hand_ruled.begin(), hand_ruled.end()) {
    for (size_t k = 0; k < operation.inputs.size(); ++k) {
      if (operation.inputs[k].spec.distribution.view() != view) continue;
      const auto& dims = operation.labels.inputs[k].dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        const size_t label_count = is_whole_dim(dims[d]) ? 1 : dims[d].size();
        for (size_t f = 0; f < label_count; ++f) note_order(k, static_cast<int>(d), f);
      }
    }
  }

  /// Returns the distribution of an output with these types, by axis.
  Distribution ordered(size_t output, std::vector<TypeOnAxis> types) const {
    Distribution result(view_);
    const auto& dims = operation_.labels.outputs[output].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      for (size_t f = 0; f < dims[d].size(); ++f) {
        add_splits(result, types, dims[d], {static_cast<int>(d), static_cast<int>(f)});
      }
    }
    for (const Axis axis : operation_.mesh.axes_of(view_))
      result = result.with(axis, on(types, axis));
    return result;
  }

 private:
  /// One axis's split of a label, as an input has it.
  struct Split {
    Axis axis;
    Pieces pieces;
    int factor = 0;
    int64_t repeats = 1;
    bool whole_dim = false;  ///< true if the label stands for the input's whole dim
  };

  /// The splits of a label, outermost first, and the input that has them.
  struct Order {
    std::vector<Split> splits;
    size_t input = 0;
  };

  /// Notes the order in which axes split a label of an input. Throws if another input disagrees.
  void note_order(size_t input, int dim, size_t factor) {
    const auto& labels = operation_.labels.inputs[input].dims[static_cast<size_t>(dim)];
    const bool whole_dim = is_whole_dim(labels);
    const Distribution& distribution = operation_.inputs[input].spec.distribution;
    Order order{.splits = {}, .input = input};
    for (const Axis axis : distribution.order(dim)) {
      const TypeOnAxis& type = distribution.on(axis);
      if (!whole_dim && type.factor != static_cast<int>(factor)) continue;
      const int64_t repeats = whole_dim ? type.repeats : repeats_after_outer(input, axis);
      order.splits.push_back({axis, type.pieces, type.factor, repeats, whole_dim});
    }
    const std::string_view label = operation_.labels.tied(labels[factor].name);
    require_agreement(orders_.try_emplace(label, order).first->second, order, label);
    if (!whole_dim) return;
    require_agreement(whole_orders_.try_emplace(label, order).first->second, order, label);
  }

  /// Returns the repeats that a split would have if all splits of the factors outside it came
  /// first, as they do in outputs. Example: in a dim of 8 sequences × 6 positions, context splits
  /// the positions, with 8 repeats, before data splits the sequences. If data leaves this rank 4 of
  /// the 8, the result is 4. For uneven pieces of 3 + 5 it is 3 or 5, by the dim's extent on this
  /// rank.
  int64_t repeats_after_outer(size_t input, Axis axis) const {
    const Spec& spec = operation_.inputs[input].spec;
    const Distribution& distribution = spec.distribution;
    const TypeOnAxis& type = distribution.on(axis);
    const std::span<const Axis> order = distribution.order(type.dim);
    int64_t repeats = type.repeats;
    for (auto later = std::ranges::find(order, axis) + 1; later != order.end(); ++later) {
      const TypeOnAxis& later_type = distribution.on(*later);
      if (later_type.factor >= type.factor) continue;
      const int ranks = operation_.mesh.size(*later);
      int64_t own = 1, whole = ranks;  // this rank has own / whole of the outer factor
      if (later_type.pieces.kind == PieceKind::uneven) {
        own = spec.shape[type.dim];
        for (auto inner = order.end() - 1; inner != later; --inner) {
          own = joined_extent(distribution.on(*inner), operation_.mesh.size(*inner), own);
        }
        whole = joined_extent(later_type, ranks, own);
      }
      // Pieces that are empty or cut an outer element have no whole number of repeats to reduce to.
      if (own > 0 && repeats * own % whole == 0) repeats = repeats * own / whole;
    }
    return repeats;
  }

  /// Throws DistributionError unless two inputs give each rank the same elements of a label. Where
  /// the label is the whole dim of both inputs, the repeats of the splits must agree, too.
  void require_agreement(const Order& known, const Order& order, std::string_view label) const {
    const auto agree = [&](const Split& a, const Split& b) {
      return a.axis == b.axis && same_pieces(known.input, order.input, a, b, label) &&
             (a.repeats == b.repeats || !a.whole_dim || !b.whole_dim);
    };
    if (std::ranges::equal(compared(known), compared(order), agree)) return;
    throw DistributionError(
        fmt::format("{}: label {} is split in the order ({}) in '{}' and ({}) in '{}'",
                    operation_.name, label, text(order), operation_.inputs[order.input].name,
                    text(known), operation_.inputs[known.input].name));
  }

  /// Returns whether the splits of two inputs on one axis give a rank the same elements of a label.
  /// The sizes of uneven pieces count elements of the dim, so pieces_in() first converts them.
  bool same_pieces(size_t input, size_t other_input, const Split& split, const Split& other_split,
                   std::string_view label) const {
    if (split.pieces == other_split.pieces) return true;
    const LabelledOperand& operand = operation_.labels.inputs[other_input];
    const TypeOnAxis& type = operation_.inputs[input].spec.distribution.on(split.axis);
    const auto index = operation_.find_label(operand, label);
    return index && pieces_in(operation_, input, split.axis, type, operand, *index) ==
                        std::optional(other_split.pieces);
  }

  /// Returns the splits on which inputs must agree: all but those on axes with a hand-written rule.
  std::vector<Split> compared(const Order& order) const {
    std::vector<Split> splits;
    std::ranges::copy_if(order.splits, std::back_inserter(splits), [&](const Split& split) {
      return std::ranges::find(hand_ruled_, split.axis) == hand_ruled_.end();
    });
    return splits;
  }

  std::string text(const Order& order) const {
    std::vector<std::string> axes;
    for (const Split& split : order.splits) {
      axes.push_back(fmt::format(
          "{} {}", operation_.mesh.name(split.axis),
          pieces_text(split.pieces.text(&operation_.mesh), split.factor, split.repeats)));
    }
    return join(axes, ", ");
  }

  /// Adds the splits of one label of an output, in the order in which the inputs have them.
  void add_splits(Distribution& result, std::vector<TypeOnAxis>& types,
                  const std::vector<Label>& labels, LabelIndex index) const {
    const auto factor = static_cast<size_t>(index.factor);
    const auto known = orders_.find(operation_.labels.tied(labels[factor].name));
    if (known == orders_.end()) return;
    const bool is_only_label = labels.size() == 1;  // it is the whole dim of the output
    for (const Split& split : known->second.splits) {
      TypeOnAxis& type = on(types, split.axis);
      const bool splits_label =
          type.split() && type.dim == index.dim && (is_only_label || type.factor == index.factor);
      if (!splits_label) continue;
      // A label that is a whole dim on both sides carries the factor that is split within it.
      if (split.whole_dim && (is_only_label || labels[factor].opaque)) type.factor = split.factor;
      if (split.whole_dim || split.factor == 0) {
        // In the input nothing is outside the label. The output repeats it for its outer factors.
        type.repeats = extent_outside(labels, factor) * split.repeats;
      } else if (!is_only_label) {  // the input's outer factors are the output's, too
        type.repeats = split.repeats;
      }
      result = result.with(split.axis, type);
    }
  }

  /// Returns the product of the extents of the factors outside factor `factor` of a dim. An input
  /// must have each of them as a dim of its own.
  int64_t extent_outside(const std::vector<Label>& labels, size_t factor) const {
    int64_t product = 1;
    for (size_t f = 0; f < factor; ++f) product *= operation_.extent(labels[f].name);
    return product;
  }

  const LabelledOperation& operation_;
  MeshView view_;
  std::vector<Axis> hand_ruled_;
  // By label: the order in the first input that has it, and in the first input where it is a whole
  // dim. Repeats are compared between whole dims alone, and orders_ may have a factor.
  std::map<std::string_view, Order> orders_;
  std::map<std::string_view, Order> whole_orders_;
};

}  // namespace

std::vector<Distribution> in_split_order(const LabelledOperation& operation, MeshView view,
                                         std::span<const Axis> hand_ruled,
                                         const std::vector<std::vector<TypeOnAxis>>& types) {
  const SplitOrders orders(operation, view, hand_ruled);
  std::vector<Distribution> distributions;
  for (size_t i = 0; i < types.size(); ++i) distributions.push_back(orders.ordered(i, types[i]));
  return distributions;
}

}  // namespace tessera
