#pragma once

#include <cstdint>
#include <initializer_list>

#include "comm/mesh.h"
#include "program/builder.h"

namespace tessera {

// What routers and their losses need to know of tokens that are split over ranks.

/// Returns the number of tokens of one set, over all ranks that share the set. `spec` is the spec
/// of a value [tokens, ...] of this rank, which has `sets` sets of tokens. The sets are the outer
/// factor of dim 0, and the ranks that split the inner factor share each set.
int64_t tokens_of_set(const Mesh& mesh, const Spec& spec, int64_t sets);

/// Returns the sum of a value over all axes on which it is partial, in one step. The sum is
/// invariant on these axes. Throws DistributionError if the value has another placement than the
/// `accepted` ones on any other axis.
Value sum_of_ranks(Builder& builder, Value value, std::initializer_list<Placement> accepted);

/// Returns whether a value's tokens, dim 0, are split over any axis, even an axis of one rank.
bool splits_tokens(const Mesh& mesh, const Spec& spec);

}  // namespace tessera
