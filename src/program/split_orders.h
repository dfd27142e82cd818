#pragma once

#include <span>
#include <vector>

#include "program/labelled_operation.h"

namespace tessera {

/// Returns the distribution of each output of an operation, in a view of the mesh. `types` has the
/// types of the outputs, by output and by axis. They do not say in which order several axes split
/// one label: that order is taken from the inputs. The repeats of a split follow from the factors
/// outside it (see TypeOnAxis). Throws DistributionError if two inputs with the same label split it
/// in different orders or into different pieces. The axes `hand_ruled` are not compared, because a
/// hand-written rule gave the types on them.
std::vector<Distribution> in_split_order(const LabelledOperation& operation, MeshView view,
                                         std::span<const Axis> hand_ruled,
                                         const std::vector<std::vector<TypeOnAxis>>& types);

}  // namespace tessera
