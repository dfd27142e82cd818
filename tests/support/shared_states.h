#pragma once

#include "state/shard_plan.h"
#include "state/state_shard.h"

namespace tessera::testing {

/// Returns axes with which all ranks that hold the same weights share out masters and moments
/// (ZeRO-1).
inline ShardAxes states_over_all(const Mesh& mesh) {
  return {.optimizer = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1};
}

}  // namespace tessera::testing
