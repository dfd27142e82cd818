#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "comm/wire_format.h"
#include "program/builder.h"
#include "program/conversion.h"

namespace tessera {

/// Converts a value from one type to another on one axis. A type says how the ranks of the axis
/// share the value (comm/distribution.h). program/conversion.h lists the conversions, what the
/// ranks send for each, and the dual conversion, which is the gradient. If several axes split a
/// dim, a conversion joins only the pieces of the innermost split, and a new split becomes the
/// innermost. A varying value is gathered in the order of the ranks. The ranks must have equally
/// many rows, or the rows of uneven tokens. What moves between ranks, and what the gradient moves,
/// is on `lane`.
///
/// If nothing has to move, as on every axis of one rank, the result is the same memory.
///
/// Throws DistributionError if the value is not of the placement `from`, if there is no such
/// conversion, or if a sum would become rows of an exchange: only the gradient of a gather may make
/// such rows. Throws Error, which names the value, the axis and the numbers, if the pieces do not
/// divide evenly.
Value convert(Builder& builder, Value value, Axis axis, Placement from, const TypeOnAxis& to,
              Lane lane = Lane::exchanges);

/// Returns the value under the axes of another view of the mesh (see crossed()), in the same
/// memory. Its gradient crosses back.
Value cross(Builder& builder, Value value, MeshView view);

/// Returns the value with its type changed from invariant to replicated on these axes, which moves
/// nothing. An operation needs this if it combines a parameter with data that is not invariant on
/// the axes. The type on axes where the value is not invariant does not change.
Value use(Builder& builder, Value value, std::span<const Axis> axes);

/// Returns the value after use() on the axes where `like` is not invariant.
Value use_like(Builder& builder, Value value, Value like);

/// Returns the axes of a value's view on which it is partial. On every other axis it must have one
/// of the placements `accepted`. Otherwise a sum over the partial axes would not be the sum over
/// all ranks, so it throws DistributionError, which names the value and the axis.
std::vector<Axis> axes_of_sum(const Builder& builder, Value value,
                              std::initializer_list<Placement> accepted);

/// Returns the sum of a partial value over several axes at once. All ranks of the axes get it
/// (partial -> invariant). The sum is taken in the value's own memory, of which the result is a
/// view, and the Builder refuses every later use of the value (see Builder::replace()). Update
/// programs use it for main gradients and other sums. Without axes the value itself is returned. It
/// has no gradient. Throws DistributionError if the value is not partial on all of these axes.
Value take_sum(Builder& builder, Value value, std::span<const Axis> axes);

/// Returns take_sum() of a large value. Where the data axis has levels (the ranks of a node, and
/// the nodes), the sum is taken level by level (MegaScale-MoE, appendix A.1): a reduce-scatter
/// within the innermost level, the sum of each rank's slice over the levels outside it, and an
/// all-gather. So each of n ranks of a node sends an n-th of the value to other nodes. f32 is sent
/// in the format `wire` (WireSum).
Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes,
                        const Wire& wire);

}  // namespace tessera
