#pragma once

#include <optional>

#include "program/labelled_operation.h"

namespace tessera {

/// Returns an input's pieces of a label, as they are in a dim of another operand. Listed sizes
/// count elements of a dim, so they are multiplied by the extents of the labels inside the label
/// there, and divided by those inside it in the input. Returns none if no operand gives these
/// extents. Throws DistributionError if a size does not divide.
std::optional<Pieces> pieces_in(const LabelledOperation& operation, size_t input, Axis axis,
                                const TypeOnAxis& type, const LabelledOperand& operand,
                                LabelIndex index);

/// Returns whether an input's pieces of a label may begin or end inside one of its elements: the
/// label has others inside it, the pieces are not consecutive, and no operand shows that they
/// consist of whole elements.
bool may_cut_elements(const LabelledOperation& operation, size_t input, const TypeOnAxis& type);

}  // namespace tessera
