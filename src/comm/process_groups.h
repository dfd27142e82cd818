#pragma once

#include "comm/processes.h"
#include "comm/rank_groups.h"

namespace tessera {

/// The groups in which a rank that is a process meets the others of a mesh. Refers to `processes`.
inline RankGroups groups_of(const Mesh& mesh, Processes& processes) {
  return RankGroups(
      mesh, processes.rank(),
      [&processes](std::span<const int> ranks, std::string_view lane) {
        return processes.group(ranks, lane);
      },
      [&processes](std::string_view why) { processes.end_work(why); });
}

}  // namespace tessera
