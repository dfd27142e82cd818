#pragma once

#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"

namespace tessera {

/// A set of ranks of a mesh, in ascending order.
using RankSet = std::vector<int>;

/// Returns all ranks, divided into sets. The ranks of a set are in one pipeline stage, and have
/// equal coordinates on those axes for which TypeOnAxis::same_on_ranks() is `same_on_axes`.
std::vector<RankSet> sets_by_axes(const Mesh& mesh, const Distribution& distribution,
                                  bool same_on_axes);

/// Returns sets of ranks of one stage that hold the same part of a value with this distribution.
inline std::vector<RankSet> sets_with_equal_parts(const Mesh& mesh,
                                                  const Distribution& distribution) {
  return sets_by_axes(mesh, distribution, /*same_on_axes=*/false);
}

/// Returns sets of ranks of one stage that together hold one copy of the value.
inline std::vector<RankSet> sets_with_one_copy(const Mesh& mesh, const Distribution& distribution) {
  return sets_by_axes(mesh, distribution, /*same_on_axes=*/true);
}

}  // namespace tessera
