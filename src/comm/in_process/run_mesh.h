#pragma once

#include <functional>

#include "comm/in_process/world.h"
#include "comm/rank_groups.h"

namespace tessera {

/// Calls body(groups) for every rank by run_ranks(). `groups` are the rank's groups on the mesh.
inline void run_mesh(World& world, const Mesh& mesh,
                     const std::function<void(RankGroups& groups)>& body) {
  run_ranks(world, [&](int rank) {
    RankGroups groups(
        mesh, rank,
        [&](std::span<const int> ranks, std::string_view lane) {
          return world.group(rank, ranks, lane);
        },
        [&](std::string_view why) { world.end_work(rank, why); });
    body(groups);
  });
}

}  // namespace tessera
