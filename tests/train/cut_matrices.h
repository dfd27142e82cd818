#pragma once

#include "config/mesh_of.h"
#include "support/rank_plans.h"

namespace tessera {

/// Whether some rank has a piece of a matrix that is cut.
inline bool cuts_matrices(const RunConfig& config, int ranks) {
  for (const StepPlan& plan : plans_of_ranks(config, mesh_of(config, ranks))) {
    for (const Node& node : plan.programs.update.program.nodes()) {
      if (node.operation->name() == "gather_at_owners") return true;
    }
  }
  return false;
}

}  // namespace tessera
