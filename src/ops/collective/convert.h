#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "comm/wire_format.h"
#include "program/builder.h"
#include "program/conversion.h"

namespace tessera {

/// Converts a value to another type on one axis (program/conversion.h has the conversions, what
/// moves and their duals). Its gradient is the dual conversion. If several axes split a dim, a
/// conversion joins the pieces of the innermost alone, and a new split becomes the innermost. A
/// varying value is gathered in the order of the ranks. They have equally many rows, or those of
/// uneven tokens.
///
/// If the ranks need not move anything, as always on an axis of one rank, the result is the same
/// memory.
///
/// Throws DistributionError if the value is not of the type that the conversion begins with, if
/// there is no such conversion, or if a sum is to become rows of an exchange: that is for the
/// gradient of a gather of such rows. Throws Error, which names the value, the axis and the
/// numbers, if pieces do not divide.
Value convert(Builder& builder, Value value, Axis axis, Placement from, const TypeOnAxis& to);

/// Returns the value in the other view of the mesh (see crossed()), in the same memory. Its
/// gradient crosses back.
Value cross(Builder& builder, Value value, MeshView view);

/// Returns a value that is retyped from invariant to replicated on these axes, which moves nothing.
/// This is for a parameter that meets data that is not invariant there. Axes on which the value is
/// not invariant are left as they are. All others change in one node.
Value use(Builder& builder, Value value, std::span<const Axis> axes);

/// Returns the value after use() on the axes where `like` is not invariant.
Value use_like(Builder& builder, Value value, Value like);

/// Returns the axes of a value's view on which it is partial. On every other axis it must be of one
/// of the placements `besides`. Otherwise its sum over these axes would not be that of all ranks,
/// so it throws DistributionError, which names the value and the axis.
std::vector<Axis> axes_of_sum(const Builder& builder, Value value,
                              std::initializer_list<Placement> besides);

/// Returns the sum of a partial value over several axes at once: all ranks of the axes get it, and
/// it is invariant there (partial -> invariant). The sum is taken in the value's own memory, of
/// which the result is a view. So nothing else may read the value afterwards: the Builder refuses
/// it (see Builder::replace()). For main gradients and sums in programs of updates; there is no
/// gradient. Over axes of one rank it moves nothing. Throws DistributionError if the value is not
/// partial on all of these axes.
Value take_sum(Builder& builder, Value value, std::span<const Axis> axes);

/// Returns take_sum() of a large value. Where the data axis has levels, the sum is taken level by
/// level (MegaScale-MoE, appendix A.1): a reduce-scatter within the innermost level, the sum of
/// each rank's slice over the levels outside it, and an all-gather. So each of n ranks of a node
/// sends an n-th of the value to other nodes. Values of f32 are sent in the format `wire`. If that
/// rounds them, the rounded copy takes half of the value's memory.
Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes, WireFormat wire);

}  // namespace tessera
