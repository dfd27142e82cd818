#pragma once

#include <cstdint>
#include <initializer_list>

#include "comm/mesh.h"
#include "program/builder.h"

namespace tessera {

/// Returns the number of tokens of a set, over all ranks that share it. A rank's value [tokens,
/// ...] has tokens of `sets` sets. Sets are the outer factor of dim 0, and the ranks that split the
/// inner factor share each of them.
int64_t tokens_of_set(const Mesh& mesh, const Spec& spec, int64_t sets);

/// Sums a value over the axes on which it is partial, over all ranks at once, and returns the sum,
/// which is invariant there. Throws DistributionError if the value has none of the `accepted`
/// placements on another axis.
Value sum_of_ranks(Builder& builder, Value value, std::initializer_list<Placement> accepted);

/// Returns whether a value's tokens, dim 0, are split over any axis, even an axis of one rank.
bool splits_tokens(const Mesh& mesh, const Spec& spec);

}  // namespace tessera
