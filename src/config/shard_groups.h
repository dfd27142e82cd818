#pragma once

#include <vector>

#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// Adds levels to those of a run's network, innermost first, so that each number of ranks in
/// [shard] is that of a group of neighbours that hold the same weights. The number counts these
/// ranks alone; a level also counts the tensor ranks and the pipeline stages among them. Throws
/// Error that names the key, the levels and the numbers to choose from, if the group and a level
/// would cut each other.
void add_shard_groups(const RunConfig& config, int ranks, std::vector<MeshLevel>& levels);

}  // namespace tessera
