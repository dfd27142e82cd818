#pragma once

#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"

namespace tessera {

/// Ranks of a mesh, ascending.
using RankSet = std::vector<int>;

/// All ranks, in sets that hold the same part of a value which lies so. Ranks of different pipeline
/// stages are in different sets, here and below.
std::vector<RankSet> sets_with_equal_parts(const Mesh& mesh, const Distribution& distribution);

/// All ranks, in sets that together hold one copy of the value.
std::vector<RankSet> sets_with_one_copy(const Mesh& mesh, const Distribution& distribution);

}  // namespace tessera
