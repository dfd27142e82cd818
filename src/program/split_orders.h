#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/labelled_operation.h"

namespace tessera {

/// The order in which axes split each label of an operation's inputs, and the distributions of its
/// outputs that follow. It refers to the operation.
class SplitOrders {
 public:
  /// Reads the orders from the inputs of one view. Throws DistributionError if two of them with one
  /// label disagree. Axes of `by_hand` are not checked, because a rule by hand decides those.
  SplitOrders(const LabelledOperation& operation, MeshView view, std::span<const Axis> by_hand);

  /// Returns the distribution of an output with these types, by axis. Each of its dims is split in
  /// the order of the inputs, and splits repeat as often as the factors outside them say.
  Distribution ordered(size_t output, std::vector<TypeOnAxis> types) const;

 private:
  /// One axis's split of a label, as an input has it.
  struct Split {
    Axis axis;
    Pieces pieces;
    int factor = 0;
    int64_t repeats = 1;
    bool whole_dim = false;  ///< the label stands for the whole dim, with all its factors
  };

  /// The splits of a label, outermost first, and the input that has them.
  struct Order {
    std::vector<Split> splits;
    size_t input = 0;
  };

  void note_order(size_t input, int dim, size_t factor);
  void require_agreement(const Order& known, const Order& order, std::string_view label) const;
  bool same_pieces(size_t input, size_t other, const Split& split, const Split& other_split,
                   std::string_view label) const;
  std::vector<Split> checked(const Order& order) const;
  int64_t repeats_after_outer(size_t input, Axis axis) const;
  void add_splits(Distribution& result, std::vector<TypeOnAxis>& types,
                  const std::vector<Label>& labels, LabelIndex index) const;
  int64_t extent_outside(const std::vector<Label>& labels, size_t factor) const;
  std::string text(const Order& order) const;

  const LabelledOperation& operation_;
  MeshView view_;
  std::vector<Axis> by_hand_;
  std::map<std::string_view, Order> orders_;        // by label, like the next
  std::map<std::string_view, Order> whole_orders_;  // of labels that stand for a whole dim
};

}  // namespace tessera
