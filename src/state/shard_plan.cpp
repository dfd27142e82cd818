#include "state/shard_plan.h"

namespace tessera {

ShardPlan shard_plan(const ShardConfig& config, const Mesh& mesh) {
  Wire gradients_wire{.format = config.gradients_wire,
                      .block = config.block,
                      .by_level = config.gradients_by_level};
  const auto wire = [&](WireFormat format) {
    return Wire{.format = format, .block = config.block};
  };
  return {.axes = shard_axes(config, mesh),
          .unit_options = {.gathers_again = config.gather_again,
                           .weights_wire = wire(config.weights_wire),
                           .secondary_wire = wire(config.secondary_wire),
                           .gradients_wire = gradients_wire,
                           .error_feedback = config.error_feedback}};
}

}  // namespace tessera
