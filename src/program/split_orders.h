#pragma once

#include <span>
#include <vector>

#include "program/labelled_operation.h"

namespace tessera {

/// Returns the distributions of an operation's outputs in a view of the mesh. `types` has the
/// outputs' types, by output and by axis. Each label of an output is split by its axes in the order
/// in which the inputs split it, and splits repeat as often as the factors outside them say (see
/// TypeOnAxis). Throws DistributionError if two inputs with one label have it in another order or
/// in other pieces. Axes of `by_hand` are not compared, because a hand-written rule decides those.
std::vector<Distribution> in_split_order(const LabelledOperation& operation, MeshView view,
                                         std::span<const Axis> by_hand,
                                         const std::vector<std::vector<TypeOnAxis>>& types);

}  // namespace tessera
