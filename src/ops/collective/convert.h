#pragma once

#include <span>

#include "program/builder.h"
#include "program/conversion.h"

namespace tessera {

/// Changes a value's type on one axis (program/conversion.h has the conversions and their duals).
/// Where the ranks need not move anything, which is always so on an axis of one rank, the result is
/// the same memory. Its gradient is the dual conversion. Throws DistributionError if the value is
/// not of the type that the conversion begins with, or if there is no such conversion.
Value convert(Builder& builder, Value value, Axis axis, Placement from, const TypeOnAxis& to);

/// The value as the other view of the mesh sees it (see crossed()), in the same memory. Its
/// gradient crosses back.
Value cross(Builder& builder, Value value, MeshView view);

/// Retypes invariant values as replicated on these axes, which moves nothing: a parameter that
/// meets data that is not invariant there. Axes on which the value is not invariant are left as
/// they are.
Value use(Builder& builder, Value value, std::span<const Axis> axes);

/// The same on the axes where `like` is not invariant.
Value use_like(Builder& builder, Value value, Value like);

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes);

}  // namespace tessera
