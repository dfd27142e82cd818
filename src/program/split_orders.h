#pragma once

#include <span>
#include <vector>

#include "program/labelled_operation.h"

namespace tessera {

/// Joins the types of an operation's outputs on single axes, which `types` has by output and by
/// axis, into distributions in a view of the mesh. The axes that split a label of an output do so
/// in the order in which they split it in the inputs. The repeats of a split follow from the
/// factors outside it (see TypeOnAxis). Throws DistributionError if two inputs with the same label
/// split it in different orders or into different pieces. Axes of `by_hand` are not compared: a
/// hand-written rule answered for them.
std::vector<Distribution> in_split_order(const LabelledOperation& operation, MeshView view,
                                         std::span<const Axis> by_hand,
                                         const std::vector<std::vector<TypeOnAxis>>& types);

}  // namespace tessera
