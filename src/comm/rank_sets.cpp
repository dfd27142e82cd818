#include "comm/rank_sets.h"

#include <map>
#include <utility>

namespace tessera {

std::vector<RankSet> sets_by_axes(const Mesh& mesh, const Distribution& distribution,
                                  bool same_on_axes) {
  std::map<std::vector<int>, RankSet> sets;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int> coordinates{mesh.coordinate(rank, mesh.pipeline())};
    for (const Axis axis : mesh.axes_of(distribution.view())) {
      if (distribution.on(axis).same_on_ranks() == same_on_axes) {
        coordinates.push_back(mesh.coordinate(rank, axis));
      }
    }
    sets[coordinates].push_back(rank);
  }
  std::vector<RankSet> result;
  for (auto& [coordinates, ranks] : sets) result.push_back(std::move(ranks));
  return result;
}

}  // namespace tessera
