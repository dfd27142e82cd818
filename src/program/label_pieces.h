#pragma once

#include <optional>

#include "program/labelled_operation.h"

namespace tessera {

/// What an input's pieces of a label are in a dim of another operand. Listed sizes count elements
/// of a dim, so they are multiplied by the extents of the labels that lie inside the label there,
/// and divided by those that lie inside it in the input. None if these extents follow from no
/// operand. Throws DistributionError if a size does not divide.
std::optional<Pieces> pieces_in(const LabelledOperation& operation, size_t input, Axis axis,
                                const TypeOnAxis& type, const LabelledOperand& operand,
                                LabelPlace place);

/// Whether an input's pieces of a label may begin or end inside one of its elements: the label has
/// others inside it, the pieces are not consecutive, and no operand says that they are of whole
/// elements.
bool may_cut_elements(const LabelledOperation& operation, size_t input, const TypeOnAxis& type);

}  // namespace tessera
