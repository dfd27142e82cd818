#include "state/shard_plan.h"

namespace tessera {

ShardPlan shard_plan(const ShardConfig& config, const Mesh& mesh) {
  return {.axes = shard_axes(config, mesh),
          .unit_options = {.gradients_wire = {.format = config.gradients_wire}}};
}

}  // namespace tessera
