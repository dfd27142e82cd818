#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Returns a view of `whole` that begins at element `first` and has the shape `shape`: a parameter
/// within its unit's flat memory, a slice of a gathered value. It shares the memory of `whole` and
/// costs nothing. Its gradient is a part of the gradient of `whole` (see join_parts()), or of its
/// main gradient. Throws InternalError if the view is not within `whole`.
Value view(Builder& builder, Value whole, int64_t first, const Shape& shape);

/// Returns a part of a unit (model/parameter.h) under the given distribution. Its name is `name`,
/// without the current scope. The part has the unit's view of the mesh. On an axis where the unit
/// is split into flat pieces, the part is split along one of its dims; on the others it has the
/// unit's type. Throws DistributionError if it does not.
Value view(Builder& builder, Value unit, int64_t first, const Shape& shape,
           const Distribution& distribution, std::string name);

/// Returns a view of all of a value with `distribution`, which may differ from the value's on axes
/// of one rank: there all types mean the same. Throws DistributionError if the types differ on
/// another axis, or are of different views of the mesh.
Value retype_on_single_ranks(Builder& builder, Value value, const Distribution& distribution,
                             std::string name);

/// Returns a value's memory as the other view of the mesh sees it. Throws DistributionError if it
/// cannot cross (see crossed()).
Value in_view(Builder& builder, Value value, MeshView view, std::string name);

/// Returns a value of the shape `whole`: zeros, to which part i is added from element `firsts[i]`
/// on. All parts have the same floating dtype. The operation has no gradient.
Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole);

/// Adds up parts as above, into a unit. The parts have distributions of their own, and the result
/// has `distribution`. Throws DistributionError if a part could not be a view() of such a unit.
Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole, const Distribution& distribution);

}  // namespace tessera
