#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/distribution.h"
#include "program/derive.h"
#include "program/labels.h"

namespace tessera {

/// Returns whether the first label of a dim stands for the whole dim: it is the only one, or it is
/// marked so ("n*"). The other factors of such a dim cannot be split.
bool is_whole_dim(const std::vector<Label>& dim);

/// The position of a label in an operand: the index of the dim, and of the factor in the dim.
struct LabelIndex {
  int dim = 0;
  int factor = 0;
};

/// An operation with its operands and the labels of their dims: all that the rules of distribution
/// need. The members are references to objects of the caller. Tied labels, which split together,
/// count as one label with the name of the first.
struct LabelledOperation {
  const Mesh& mesh;
  std::string_view name;
  const Labels& labels;
  std::span<const TypedOperand> inputs;

  /// Throws InternalError unless every input has labels, one for each of its dims.
  void check_labels() const;

  /// Returns the label that a split of an input divides.
  const Label& split_label(size_t input, const TypeOnAxis& split) const;

  /// Returns the index of a label in an operand; none if the operand lacks it.
  std::optional<LabelIndex> find_label(const LabelledOperand& operand,
                                       std::string_view label) const;
  bool has_label(const LabelledOperand& operand, std::string_view label) const {
    return find_label(operand, label).has_value();
  }
  bool an_output_has_label(std::string_view label) const;

  /// Returns the extent of a label on this rank, from an input that has it as a dim of its own.
  /// Throws DistributionError if there is none.
  int64_t extent(const std::string& label) const;

  /// Returns whether invariant and replicated mean the same for an input of this type, because it
  /// is the same on all ranks and has no gradient.
  bool is_neutral(size_t input, const TypeOnAxis& type) const;
};

/// Converts the pieces of a label from an input to another operand, which has the label at `index`.
/// Only the sizes of uneven pieces change, because they count elements of a dim: a piece of 2 h is
/// 2 elements of the dim `h`, but 2 · d elements of the dim `(h d)`. The sizes are divided by the
/// extents of the factors inside the label in the input, and multiplied by the extents of the
/// factors inside it in the other operand. Returns none if no operand gives these extents. Throws
/// DistributionError if a size does not divide.
std::optional<Pieces> pieces_in(const LabelledOperation& operation, size_t input, Axis axis,
                                const TypeOnAxis& type, const LabelledOperand& operand,
                                LabelIndex index);

/// Returns whether an input's pieces of a label may begin or end inside one of its elements: the
/// label has others inside it, the pieces are not consecutive, and no operand shows that they
/// consist of whole elements.
bool may_cut_elements(const LabelledOperation& operation, size_t input, const TypeOnAxis& type);

}  // namespace tessera
