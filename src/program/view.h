#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// A view of `whole` that begins at element `first` and has the shape `shape`: a parameter within
/// its unit's flat memory, a slice of a gathered value. It is the memory of `whole` and costs
/// nothing. Its gradient is a part of the gradient of `whole` (see join_parts()), or of its main
/// gradient. Throws InternalError if the view does not lie within `whole`.
Value view(Builder& builder, Value whole, int64_t first, const Shape& shape);

/// The same of a unit, whose parts each lie in their own way: `distribution` is that of the part
/// `name`, which is taken as it is. A part is of the unit's view of the mesh. On each axis it is
/// split along one of its dims if the unit is flat there, and otherwise of the unit's type. Throws
/// DistributionError if it is not.
Value view(Builder& builder, Value unit, int64_t first, const Shape& shape,
           const Distribution& distribution, std::string name);

/// A value's memory under another type on axes of one rank, where all types say the same. Throws
/// DistributionError if it is of another type on another axis, or of the other view of the mesh.
Value retype_on_single_ranks(Builder& builder, Value value, const Distribution& distribution,
                             std::string name);

/// A value's memory as the other view of the mesh sees it. Throws DistributionError if it does not
/// cross (see crossed()).
Value in_view(Builder& builder, Value value, MeshView view, std::string name);

/// A value of the shape `whole` that has `parts`, each from its element of `firsts` on, added up
/// where they overlap, and zeros elsewhere. The parts are of one floating type. There is no
/// gradient.
Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole);

/// The same of parts of a unit, each of which lies in its own way, as those that view() makes of a
/// unit of this distribution. Throws DistributionError if they do not.
Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole, const Distribution& distribution);

}  // namespace tessera
