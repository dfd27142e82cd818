#pragma once

#include <string>
#include <vector>

#include "comm/in_process/run_mesh.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "support/rank_plans.h"
#include "train/training_state.h"

namespace tessera {

/// Loads a run's newest checkpoint on the ranks of a layout, and saves it as one of another run.
inline void load_and_save(const RunConfig& from, const std::string& to, int ranks) {
  const RunConfig config = resolve(from);
  const Mesh mesh = mesh_of(config, ranks);
  const TrainingData data = open_data(config.data);
  std::vector<StepPlan> plans = plans_of_ranks(config, mesh);
  World world(ranks);
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const RankControl control(groups);
    Runtime runtime(run_target(config, nullptr, ranks));
    runtime.join(groups);
    StepPlan& plan = plans[static_cast<size_t>(groups.rank())];
    Executor executor(plan.programs.list(), std::move(plan.memory), runtime);
    const ParameterStore store = store_of(plan.programs, executor);
    RunConfig own = config;
    const TrainingPosition position =
        load_training(own, store, data, Logger::silent(), {runtime, control});
    own.run.directory = to;
    save_training(own, store, position, data, {runtime, control});
  });
}

}  // namespace tessera
