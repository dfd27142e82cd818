#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// An axis of a Mesh, as an index in Mesh::axes(). Meshes have axes, tensors have *dims*.
struct Axis {
  int index = 0;
  bool operator==(const Axis&) const = default;
  auto operator<=>(const Axis&) const = default;
};

/// The two ways in which the ranks of a pipeline stage are arranged along axes. Attention and dense
/// layers use tensor × context × data; experts use expert × expert_data. Both products have the
/// same ranks. The pipeline axis divides the ranks into stages, and so belongs to neither view.
enum class MeshView : uint8_t { dense, expert };

/// The properties of an axis. Messages call the axis by its name, such as "tensor" or "data.1".
struct AxisInfo {
  std::string name;
  int size = 1;
  MeshView view = MeshView::dense;  ///< not used for the pipeline axis
};

/// A level of the network: a group of consecutive ranks that are nearer to each other than to other
/// ranks, such as those of a node. The groups of a level are parts of those of the next one.
struct MeshLevel {
  std::string name;   ///< "pair", "node", "all"
  int64_t ranks = 1;  ///< of a group of the level, those that share a model included
  bool operator==(const MeshLevel&) const = default;
};

/// The level of all ranks, the outermost of every mesh.
inline constexpr std::string_view kAllRanks = "all";
/// The level of the ranks of a node: of the last group that parallel.levels lists, or of a machine.
inline constexpr std::string_view kNode = "node";
/// Returns the name of a level within a node that was given as a number of ranks: "pair" for two,
/// "group.4" for four.
std::string group_name(int64_t ranks);

/// The sizes of the axes of a mesh, as a configuration gives them.
struct MeshSizes {
  int tensor = 1;
  int context = 1;
  int pipeline = 1;
  /// The data axis from its innermost level outwards: {2, 4} means two ranks on each of four nodes.
  /// It has one level if all ranks are equally near.
  std::vector<int> data{1};
  /// The number of ranks among which the experts of a layer are divided. It divides the number of
  /// ranks of a stage: tensor · context · data.
  int expert = 1;
  /// The levels of the network within the whole mesh, innermost first. Several names may stand for
  /// the same ranks. Each level of the data axis but the last ends where a level of the network
  /// does, or has size 1 because that level is within a model. Empty: they follow from `data`. The
  /// ranks within its last level are then a node.
  std::vector<MeshLevel> levels = {};
};

/// The most ranks that a mesh may have.
inline constexpr int kMostRanks = 1 << 20;

/// The ranks of a run, arranged along named axes.
///
/// Ranks are numbered along tensor, context, pipeline and data, from the innermost axis outwards.
/// This is the order of their need for bandwidth and low latency (Llama 3, section 5.2): tensor
/// parallelism communicates in every layer and waits for it; context parallelism does so in every
/// attention; a pipeline sends only its boundaries, point to point; data parallelism communicates
/// once a step and can hide it. Neighbouring ranks share a node, so the inner axes stay within it.
///
/// The expert view divides the same ranks of a stage into expert (inner) and expert_data (outer).
/// Experts exchange tokens in every layer, so the ranks of the expert axis are the nearest ones.
///
/// The data axis may have levels, such as the ranks of a node and the nodes. Each level is an axis.
/// expert_data has as many levels, each with the ranks within the same level of data. On nodes of 8
/// ranks (tensor 2, data {4, 3}) its levels are {4, 3} for 2 expert ranks. For 8 they are {1, 3}:
/// the experts fill a node. For 12 they are {1, 2}: the experts do not fit into a node.
///
/// The levels of the network have names. A level that is within the ranks that share a model gives
/// a level of the data axis of size 1.
class Mesh {
 public:
  /// Creates a mesh of one rank. It has every axis, each of size 1.
  Mesh() : Mesh(MeshSizes{}) {}
  /// Creates a mesh of these sizes. Throws Error that names the numbers if a size is below 1, or if
  /// the experts' ranks do not divide the ranks of a stage.
  explicit Mesh(const MeshSizes& sizes);

  int ranks() const { return ranks_; }
  std::span<const AxisInfo> axes() const { return axes_; }
  const AxisInfo& info(Axis axis) const;
  int size(Axis axis) const { return info(axis).size; }
  /// Returns the number of ranks of a group that spans these axes of one view.
  int group_ranks(std::span<const Axis> axes) const;
  const std::string& name(Axis axis) const { return info(axis).name; }

  // The indices of these four axes are fixed. The levels of expert_data and of data follow them.
  Axis tensor() const { return {0}; }
  Axis context() const { return {1}; }
  Axis pipeline() const { return {2}; }
  Axis expert() const { return {3}; }
  /// Returns the levels of expert_data, innermost first: the axes after expert.
  std::span<const Axis> expert_data() const { return std::span(expert_view_).subspan(1); }
  /// Returns the levels of the data axis, innermost first: the axes after tensor and context.
  std::span<const Axis> data() const { return std::span(dense_view_).subspan(2); }
  /// Returns the axes over which values of a stage are distributed, innermost first: tensor,
  /// context and the levels of data; or expert and the levels of expert_data.
  std::span<const Axis> axes_of(MeshView view) const {
    return view == MeshView::dense ? std::span(dense_view_) : std::span(expert_view_);
  }

  /// Returns the levels of the network, innermost first. The last one is "all".
  std::span<const MeshLevel> levels() const { return levels_; }
  /// Returns the level of that name, or null.
  const MeshLevel* find_level(std::string_view name) const;
  /// Returns the axes of a view that are within a level, innermost first: all ranks that differ
  /// only along these axes are in one group of the level. An axis of size 1 is within the level if
  /// the axes before it are. The pipeline axis counts with the dense view.
  std::vector<Axis> axes_within(const MeshLevel& level, MeshView view) const;

  /// Returns the coordinate of a rank on an axis. Throws InternalError if there is no such rank.
  int coordinate(int rank, Axis axis) const;
  /// Returns the pipeline stage of a rank: its coordinate on the pipeline axis.
  int stage(int rank) const { return coordinate(rank, pipeline()); }
  /// Returns the ranks whose coordinates on all other axes are those of `rank`, in the order of
  /// their coordinates on `axes`, of which the first is the innermost. All axes are of one view;
  /// the pipeline axis counts with the dense view. Without axes, the group is the rank alone. If
  /// pipeline stages are given, ranks of other stages are left out.
  std::vector<int> group(int rank, std::span<const Axis> axes,
                         std::span<const int> stages = {}) const;

  /// Returns the axes in the order in which a sum over them is taken, one list for each level. The
  /// list of the innermost level also has the axes within it: {{tensor, context, data.0}, {data.1}}
  /// for the dense view. `axes` are of one view, innermost first. Axes of one rank are left out,
  /// and so are levels without axes.
  std::vector<std::vector<Axis>> axes_by_level(std::span<const Axis> axes) const;

  /// Returns the layout in words: "2 tensor x 4 data, 4 expert", or "one rank". The product of the
  /// sizes before the comma is the number of ranks; the expert axis covers the same ranks.
  std::string text() const;

 private:
  void add_levels(std::string_view name, std::span<const int> level_sizes, MeshView view);
  /// Sets the levels of the network to these, or to those of the data axis, and to "all".
  void name_levels(std::span<const MeshLevel> levels);
  /// Returns the number of ranks that share a model: tensor, context and pipeline.
  int64_t ranks_of_a_model() const;
  /// Returns the number of consecutive ranks of a pipeline stage that are in one group of a level.
  int64_t stage_ranks_within(const MeshLevel& level) const;

  std::vector<AxisInfo> axes_;
  std::vector<Axis> dense_view_;
  std::vector<Axis> expert_view_;
  std::vector<MeshLevel> levels_;
  int ranks_ = 1;
};

/// One rank of a mesh, for which a program is written.
struct MeshRank {
  Mesh mesh = {};
  int rank = 0;
};

}  // namespace tessera
