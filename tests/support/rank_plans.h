#pragma once

#include <vector>

#include "plan/run_target.h"
#include "plan/step_plan.h"

namespace tessera {

/// Returns the plans of all ranks of a mesh, by rank, on this machine's processor.
inline std::vector<StepPlan> plans_of_ranks(const RunConfig& config, const Mesh& mesh) {
  const Target target = run_target(config, nullptr, mesh.ranks());
  std::vector<StepPlan> plans;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    plans.push_back(plan_step(config, target, {mesh, rank}));
  }
  return plans;
}

}  // namespace tessera
