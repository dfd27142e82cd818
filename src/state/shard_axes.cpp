#include "state/shard_axes.h"

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// A part of the state: its key with the value, and the axes that follow from them.
struct Part {
  std::string key;
  const ShardPlacement& placement;
  int axes = 0;

  /// Returns the key with its value and its ranks, as errors name them.
  std::string text(const Mesh& mesh, MeshView view) const {
    const int64_t ranks = cut_ranks(mesh, axes, view);
    return fmt::format("{} ({}, {} {})", key, placement.text(), ranks,
                       ranks == 1 ? "rank" : "ranks");
  }
};

/// Returns how many of these axes are within a level. Tensor and pipeline are none of them.
int axes_of_level(const std::string& key, const std::string& name, const Mesh& mesh) {
  const MeshLevel* level = mesh.find_level(name);
  if (level != nullptr) {
    const std::vector<Axis> within = mesh.axes_within(*level, MeshView::dense);
    return static_cast<int>(std::ranges::count_if(
        within, [&](Axis axis) { return axis != mesh.tensor() && axis != mesh.pipeline(); }));
  }
  std::vector<std::string> names;
  for (const MeshLevel& known : mesh.levels()) names.push_back('"' + known.name + '"');
  throw Error(
      "{} is \"{}\", and the levels of this run's network are {}; choose one of them, \"none\" or "
      "a "
      "number of ranks, or set parallel.levels",
      key, name, join(names, ", "));
}

/// Returns the most of these axes whose ranks are `ranks` in all.
int axes_of_ranks(const std::string& key, int64_t ranks, const Mesh& mesh) {
  if (ranks == 1 || cut_ranks(mesh, all_axes(mesh), MeshView::dense) == 1) return 0;
  for (int axes = all_axes(mesh); axes > 0; --axes) {
    if (cut_ranks(mesh, axes, MeshView::dense) == ranks) return axes;
  }
  throw Error("{} ({}): the mesh ({}) has no group of {} ranks that hold the same weights", key,
              ranks, mesh.text(), ranks);
}

/// Returns how many of these axes are within a group of expert ranks, which is made of tensor ranks
/// and these.
int axes_within_experts(const Mesh& mesh) {
  const int64_t experts = mesh.size(mesh.expert());
  if (mesh.size(mesh.tensor()) % experts == 0) return 0;
  for (int axes = 1; axes <= all_axes(mesh); ++axes) {
    if (mesh.size(mesh.tensor()) * cut_ranks(mesh, axes, MeshView::dense) == experts) return axes;
  }
  throw Error(
      "shard.expert_aware is false, and parallel.expert ({}) is not that of a group of neighbours "
      "(the mesh is {}): choose another parallel.expert, or leave expert_aware out",
      experts, mesh.text());
}

Part part_of(const std::string& key, const ShardPlacement& placement, const Mesh& mesh) {
  return {.key = key, .placement = placement, .axes = axes_of(key, placement, mesh)};
}

/// Throws Error unless the ranks of a part are within those of the part that depends on it.
void require_within(const Part& inner, const Part& outer, const Mesh& mesh) {
  for (const MeshView view : {MeshView::dense, MeshView::expert}) {
    if (cut_ranks(mesh, inner.axes, view) <= cut_ranks(mesh, outer.axes, view)) continue;
    throw Error(
        "{} is cut over more {} than {}: the dependency rule (ZeRO-topo, section V) asks that the "
        "group of the weights is within that of the gradients, and theirs within that of the "
        "optimizer; set {} to {} or to more ranks, or {} to {} or to fewer",
        inner.text(mesh, view), view == MeshView::dense ? "ranks" : "ranks of experts",
        outer.text(mesh, view), outer.key, inner.placement.text(), inner.key,
        outer.placement.text());
  }
}

}  // namespace

int all_axes(const Mesh& mesh) { return 1 + static_cast<int>(mesh.data().size()); }

std::vector<Axis> cut_axes(const Mesh& mesh, int axes, MeshView view) {
  std::vector<Axis> result;
  TESSERA_CHECK(axes >= 0 && axes <= all_axes(mesh), "{} axes that may cut the state of {}", axes,
                mesh.text());
  if (axes == 0) return result;
  const bool dense = view == MeshView::dense;
  if (dense) result.push_back(mesh.context());
  const std::span<const Axis> levels = dense ? mesh.data() : mesh.expert_data();
  result.insert(result.end(), levels.begin(), levels.begin() + (axes - 1));
  return result;
}

int64_t cut_ranks(const Mesh& mesh, int axes, MeshView view) {
  return mesh.group_ranks(cut_axes(mesh, axes, view));
}

int axes_of(const std::string& key, const ShardPlacement& placement, const Mesh& mesh) {
  if (placement.is_none()) return 0;
  return placement.ranks > 0 ? axes_of_ranks(key, placement.ranks, mesh)
                             : axes_of_level(key, placement.level, mesh);
}

ShardAxes shard_axes(const ShardConfig& config, const Mesh& mesh) {
  const Part weights = part_of("shard.weights", config.weights, mesh);
  const Part gradients = part_of("shard.gradients", config.gradients, mesh);
  const Part optimizer = part_of("shard.optimizer", config.optimizer, mesh);
  require_within(weights, gradients, mesh);
  require_within(gradients, optimizer, mesh);
  const int outside_experts = config.expert_aware ? 0 : axes_within_experts(mesh);
  const Part secondary = part_of("shard.secondary", config.secondary, mesh);
  require_within(secondary, optimizer, mesh);
  return {.weights = weights.axes,
          .gradients = gradients.axes,
          .optimizer = optimizer.axes,
          .outside_experts = outside_experts,
          .secondary = secondary.axes};
}

}  // namespace tessera
