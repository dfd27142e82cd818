#pragma once

#include "comm/wire_format.h"
#include "ops/collective/unit_pieces.h"
#include "state/shard_axes.h"
#include "state/shard_config.h"

namespace tessera {

/// What [shard] says for one mesh.
struct ShardPlan {
  ShardAxes axes;                                ///< over which the parts of the state are cut
  bool gathers_again = true;                     ///< see CutUnitOptions
  WireFormat gradients_wire = WireFormat::fp32;  ///< the format in which gradients are sent

  CutUnitOptions unit_options() const {
    return {.gathers_again = gathers_again, .gradients_wire = gradients_wire};
  }
};

/// Returns what a configuration says for a mesh.
ShardPlan shard_plan(const ShardConfig& config, const Mesh& mesh);

}  // namespace tessera
