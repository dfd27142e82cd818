#pragma once

#include <vector>

#include "program/labelled_operation.h"

namespace tessera {

/// Returns the types of an operation's outputs on one axis, given those of its inputs there, by
/// rules 1 to 5 of derive_distributions(). Throws DistributionError if the inputs break one.
std::vector<TypeOnAxis> derive_on_axis(const LabelledOperation& operation, Axis axis,
                                       const std::vector<TypeOnAxis>& inputs);

}  // namespace tessera
