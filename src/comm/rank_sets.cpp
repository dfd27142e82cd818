#include "comm/rank_sets.h"

#include <map>
#include <utility>

namespace tessera {
namespace {

/// Returns all ranks, divided into sets. The ranks of a set are in one pipeline stage, and have
/// equal coordinates on certain axes: if `same`, on those along which all ranks hold the same
/// elements; otherwise on those along which they do not.
std::vector<RankSet> sets_by_axes(const Mesh& mesh, const Distribution& distribution, bool same) {
  std::map<std::vector<int>, RankSet> sets;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int> coordinates{mesh.coordinate(rank, mesh.pipeline())};
    for (const Axis axis : mesh.of_view(distribution.view())) {
      if (distribution.on(axis).same_on_ranks() == same) {
        coordinates.push_back(mesh.coordinate(rank, axis));
      }
    }
    sets[coordinates].push_back(rank);
  }
  std::vector<RankSet> result;
  for (auto& [coordinates, ranks] : sets) result.push_back(std::move(ranks));
  return result;
}

}  // namespace

std::vector<RankSet> sets_with_equal_parts(const Mesh& mesh, const Distribution& distribution) {
  return sets_by_axes(mesh, distribution, false);
}

std::vector<RankSet> sets_with_one_copy(const Mesh& mesh, const Distribution& distribution) {
  return sets_by_axes(mesh, distribution, true);
}

}  // namespace tessera
