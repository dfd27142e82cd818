#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "comm/rank_groups.h"

namespace tessera {

/// Returns the groups of this process's rank with the other ranks of a mesh. Refers to `processes`.
inline RankGroups groups_of(const Mesh& mesh, Processes& processes) {
  return RankGroups(
      mesh, processes.rank(),
      [&processes](std::span<const int> ranks, std::string_view lane) {
        return processes.group(ranks, lane);
      },
      [&processes](std::string_view why) { processes.end_work(why); });
}

/// Returns the RankControl by which these ranks agree between steps, with the machines of ranks in
/// its messages. Refers to `groups`.
inline RankControl control_of(RankGroups& groups, const Processes& processes) {
  std::vector<std::string> names;
  for (int rank = 0; rank < processes.ranks(); ++rank) names.push_back(processes.text(rank));
  return RankControl(groups, std::move(names));
}

}  // namespace tessera
