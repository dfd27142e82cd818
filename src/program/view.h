#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/builder.h"

namespace tessera {

// A view of a value is a value that shares its memory. A view of the mesh (MeshView) is something
// else: the axes by which a distribution describes the ranks.

/// Returns a view of `whole` that begins at element `first` and has the shape `shape`: for example
/// a parameter within its unit's flat memory, or a slice of a gathered value. It costs nothing. Its
/// gradient is a part of the gradient of `whole` (see join_parts()), or of its main gradient.
/// Throws InternalError if the view is not within `whole`.
Value view(Builder& builder, Value whole, int64_t first, const Shape& shape);

/// Returns a part of a unit (model/parameter.h) under the given distribution. Its name is `name`,
/// without the current scope. The part must be described by the unit's MeshView. On an axis where
/// the unit is split into flat pieces, the part must be split along one of its dims. On the other
/// axes it must have the unit's type. Throws DistributionError otherwise.
Value view(Builder& builder, Value unit, int64_t first, const Shape& shape,
           const Distribution& distribution, std::string name);

/// Returns a view of all of a value with `distribution`, which may differ from the value's on axes
/// of one rank, on which every type describes the same memory. Throws DistributionError if the
/// types differ on another axis, or are of different views of the mesh.
Value retype_on_single_ranks(Builder& builder, Value value, const Distribution& distribution,
                             std::string name);

/// Returns a view of all of a value, described by another MeshView. Throws DistributionError if
/// that is not possible (see crossed()).
Value in_view(Builder& builder, Value value, MeshView view, std::string name);

/// Returns a value of the shape `whole`: zeros, to which part i is added from element `firsts[i]`
/// on. Parts may overlap. All have the same floating dtype. The operation has no gradient. If
/// `unit`, the distribution of a unit, is given, the result has it, and each part must have a
/// distribution that a view() of such a unit can have. Otherwise throws DistributionError.
Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole, const std::optional<Distribution>& unit = {});

}  // namespace tessera
