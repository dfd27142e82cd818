#pragma once

#include <cstdint>
#include <initializer_list>

#include "comm/mesh.h"
#include "program/builder.h"

namespace tessera {

/// The tokens of a set, of which a value [tokens, ...] has those of `sets` sets on one rank: the
/// outer factor of dim 0 tells sets apart, and the ranks that split the inner one share each of
/// them.
int64_t tokens_of_set(const Mesh& mesh, const Spec& spec, int64_t sets);

/// Takes the sums of a value over the axes on which it is partial, over all ranks at once: it is
/// invariant there. Throws DistributionError if it is of none of the `accepted` placements on
/// another axis.
Value sum_of_ranks(Builder& builder, Value value, std::initializer_list<Placement> accepted);

/// Whether a value's tokens, dim 0, are split over the ranks of any axis, be it of one rank.
bool splits_tokens(const Mesh& mesh, const Spec& spec);

}  // namespace tessera
