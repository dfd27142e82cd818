#pragma once

#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"

namespace tessera {

/// A set of ranks of a mesh, in ascending order.
using RankSet = std::vector<int>;

/// Returns all ranks, divided into sets. The ranks of a set hold the same part of a value with this
/// distribution. Ranks of different pipeline stages are in different sets, here and below.
std::vector<RankSet> sets_with_equal_parts(const Mesh& mesh, const Distribution& distribution);

/// Returns all ranks, divided into sets. The ranks of a set together hold one copy of the value.
std::vector<RankSet> sets_with_one_copy(const Mesh& mesh, const Distribution& distribution);

}  // namespace tessera
