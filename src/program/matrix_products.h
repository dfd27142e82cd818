#pragma once

#include <span>

#include "program/labels.h"
#include "tensor/shape.h"

namespace tessera {

/// Returns the FLOPs of the matrix products that labels name, 2 for each multiply-add. Two factors
/// of a term form a product if they share a label that no output has (it is summed over), and an
/// output has a label of each that the other lacks: `t i, o i -> t o`. Rows of several experts
/// count once, each with the matrix of its expert: `(E r) i, E o i -> (E r) o`. `operands` are the
/// shapes of the labels' inputs; operands that only lend their shape may be left out at the end.
double matrix_product_flops(const Labels& labels, std::span<const Shape> operands);

}  // namespace tessera
