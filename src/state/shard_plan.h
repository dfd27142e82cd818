#pragma once

#include "comm/wire_format.h"
#include "ops/collective/unit_pieces.h"
#include "state/shard_axes.h"
#include "state/shard_config.h"

namespace tessera {

/// What [shard] says for one mesh.
struct ShardPlan {
  ShardAxes axes;                    ///< over which the parts of the state are cut
  CutUnitOptions unit_options = {};  ///< how frames gather and reduce

  /// Returns the format in which an update sends what is left of the gradients of a unit to sum.
  /// Sums that frames have begun with integers are ended in bf16. A unit that may not be quantised
  /// travels as it is instead.
  Wire update_wire(bool may_be_quantised, bool begun_by_frames) const {
    Wire wire = unit_options.gradients_wire;
    if (!wire.is_quantised()) return wire;
    if (begun_by_frames) wire.format = WireFormat::bf16;
    if (!may_be_quantised) wire.format = WireFormat::fp32;
    return wire;
  }
};

/// Returns what a configuration says for a mesh.
ShardPlan shard_plan(const ShardConfig& config, const Mesh& mesh);

}  // namespace tessera
