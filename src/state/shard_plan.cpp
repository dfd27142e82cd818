#include "state/shard_plan.h"

namespace tessera {

ShardPlan shard_plan(const ShardConfig& config, const Mesh& mesh) {
  const auto all = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1;
  return {.axes = {.optimizer = config.optimizer == ShardOver::all ? all : 0},
          .unit_options = {.gradients_wire = {.format = config.gradients_wire}}};
}

}  // namespace tessera
