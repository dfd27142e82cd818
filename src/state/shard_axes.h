#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "state/shard_config.h"

namespace tessera {

/// The axes over which the parts of the training state are cut. Ranks that hold the same weights
/// differ in their coordinates on the context axis and on the levels of the data axis. These axes
/// are counted in this order, from the innermost on, so each number stands for a nested group of
/// ranks. Experts are cut over the levels of expert_data within the same group.
struct ShardAxes {
  int weights = 0;    ///< 0: each rank has whole weights
  int gradients = 0;  ///< 0: each rank adds up whole main gradients
  int optimizer = 0;  ///< of masters and moments; 0: each rank has all of them
  /// The number of the first axes that do not cut the optimizer's states of parameters outside the
  /// experts: those within a group of expert ranks, if each such group is to keep a copy (the plain
  /// sharded optimizer of Optimus, figure 6). 0 if experts are taken into account (EPSO).
  int outside_experts = 0;
  int secondary = 0;  ///< of a second copy of the weights (hpZ of ZeRO++); 0: there is none
  bool operator==(const ShardAxes&) const = default;
};

/// Returns the axes over which a configuration cuts the state on a mesh. If a number of ranks is on
/// several axes of one rank, all of these count. Throws Error that names the keys if a level is
/// none of the mesh, if a number is not that of a group of the mesh, or if the dependency rule is
/// broken (ZeRO-topo, section V): the weights' group of ranks is within the gradients', and theirs
/// within that of the optimizer.
ShardAxes shard_axes(const ShardConfig& config, const Mesh& mesh);

/// Returns the number of axes of one part of the state, as ShardAxes has it. `key` names the part
/// in errors: throws Error as shard_axes() does, but knows nothing of the other parts.
int axes_of(const std::string& key, const ShardPlacement& placement, const Mesh& mesh);

/// Returns the number of axes along which all ranks that hold the same weights differ.
int all_axes(const Mesh& mesh);

/// Returns the axes of a view that a number of ShardAxes stands for, innermost first: context and
/// levels of the data axis, or the corresponding levels of expert_data.
std::vector<Axis> cut_axes(const Mesh& mesh, int axes, MeshView view);
/// Returns the number of ranks along cut_axes().
int64_t cut_ranks(const Mesh& mesh, int axes, MeshView view);

}  // namespace tessera
