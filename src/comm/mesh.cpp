#include "comm/mesh.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

// Coordinates are computed from rank numbers. In a view, each axis has a stride: the product of the
// sizes of the axes within it. The pipeline is between context and data in the numbering, and in
// neither view, so coordinate() takes it out of a rank's number first.

namespace tessera {
namespace {

void check_size(std::string_view name, int size) {
  if (size < 1) throw Error("{} = {}; it must be at least 1", name, size);
}

/// Returns the product of the sizes of the dense view and the pipeline, each at least 1. Throws
/// Error above kMostRanks after each factor, so that the product does not overflow.
int64_t checked_ranks(const MeshSizes& sizes) {
  std::vector<int> factors{sizes.tensor, sizes.context, sizes.pipeline};
  factors.insert(factors.end(), sizes.data.begin(), sizes.data.end());
  int64_t ranks = 1;
  for (const int factor : factors) {
    ranks *= factor;
    if (ranks <= kMostRanks) continue;
    throw Error("tensor {} x context {} x pipeline {} x data {} are more than {} ranks; use fewer",
                sizes.tensor, sizes.context, sizes.pipeline, fmt::join(sizes.data, " x "),
                kMostRanks);
  }
  return ranks;
}

/// Returns the sizes of the levels of expert_data. The experts' ranks divide those of a stage.
std::vector<int> expert_data_levels(const MeshSizes& sizes) {
  std::vector<int> level_sizes;
  int stage_ranks = sizes.tensor * sizes.context;  // up to this level
  int inner_size = 1;                              // of expert_data, up to the level before
  for (const int data_size : sizes.data) {
    stage_ranks *= data_size;
    // 1 if the experts' ranks do not fit a whole number of times into the ranks up to this level.
    const int size = stage_ranks % sizes.expert == 0 ? stage_ranks / sizes.expert : 1;
    level_sizes.push_back(size / inner_size);
    inner_size = size;
  }
  return level_sizes;
}

}  // namespace

std::string group_name(int64_t ranks) {
  return ranks == 2 ? "pair" : fmt::format("group.{}", ranks);
}

Mesh::Mesh(const MeshSizes& sizes) {
  check_size("parallel.tensor", sizes.tensor);
  check_size("parallel.context", sizes.context);
  check_size("parallel.pipeline", sizes.pipeline);
  check_size("parallel.expert", sizes.expert);
  if (sizes.data.empty()) throw Error("the data axis has no level; it must have at least one");
  for (const int level : sizes.data) check_size("a level of the data axis", level);
  const int64_t stage_ranks = checked_ranks(sizes) / sizes.pipeline;
  if (stage_ranks % sizes.expert != 0) {
    throw Error(
        "parallel.expert = {} does not divide the {} ranks of a pipeline stage (tensor {} · context"
        " {} · data {}); choose a divisor of {}",
        sizes.expert, stage_ranks, sizes.tensor, sizes.context,
        stage_ranks / sizes.tensor / sizes.context, stage_ranks);
  }
  axes_ = {{"tensor", sizes.tensor, MeshView::dense},
           {"context", sizes.context, MeshView::dense},
           {"pipeline", sizes.pipeline, MeshView::dense},
           {"expert", sizes.expert, MeshView::expert}};
  dense_view_ = {tensor(), context()};
  expert_view_ = {expert()};
  add_levels("expert_data", expert_data_levels(sizes), MeshView::expert);
  add_levels("data", sizes.data, MeshView::dense);
  ranks_ = static_cast<int>(stage_ranks) * sizes.pipeline;
  name_levels(sizes.levels);
}

void Mesh::add_levels(std::string_view name, std::span<const int> level_sizes, MeshView view) {
  std::vector<Axis>& view_axes = view == MeshView::dense ? dense_view_ : expert_view_;
  const bool one_level = level_sizes.size() == 1;
  for (size_t level = 0; level < level_sizes.size(); ++level) {
    view_axes.push_back({static_cast<int>(axes_.size())});
    axes_.push_back({one_level ? std::string(name) : fmt::format("{}.{}", name, level),
                     level_sizes[level], view});
  }
}

void Mesh::name_levels(std::span<const MeshLevel> levels) {
  levels_.assign(levels.begin(), levels.end());
  const int64_t model_ranks = ranks_of_a_model();
  std::vector<int64_t> within;  // the ranks within each level of the data axis
  for (const Axis level : data()) {
    within.push_back((within.empty() ? model_ranks : within.back()) * size(level));
  }
  if (levels.empty()) {
    for (size_t i = 0; i + 1 < within.size(); ++i) {
      const bool is_last = i + 2 == within.size();
      levels_.push_back({is_last ? std::string(kNode) : group_name(within[i]), within[i]});
    }
  }
  levels_.push_back({std::string(kAllRanks), ranks_});
  for (size_t i = 0; i + 1 < levels_.size(); ++i) {
    const auto& [name, ranks] = levels_[i];
    TESSERA_CHECK(ranks >= 1 && levels_[i + 1].ranks % ranks == 0,
                  "the level {} has {} ranks, and the next one {}", name, ranks,
                  levels_[i + 1].ranks);
    TESSERA_CHECK(model_ranks % ranks == 0 || std::ranges::find(within, ranks) != within.end(),
                  "the level {} has {} ranks, after which no level of the data axis ends", name,
                  ranks);
  }
}

const MeshLevel* Mesh::find_level(std::string_view name) const {
  const auto found = std::ranges::find(levels_, name, &MeshLevel::name);
  return found == levels_.end() ? nullptr : &*found;
}

std::vector<Axis> Mesh::axes_within(const MeshLevel& level, MeshView view) const {
  const bool dense = view == MeshView::dense;
  std::vector<Axis> axes;
  if (dense) axes = {tensor(), context(), pipeline()};
  const std::span<const Axis> rest = dense ? data() : axes_of(view);
  axes.insert(axes.end(), rest.begin(), rest.end());
  const int64_t level_ranks = dense ? level.ranks : stage_ranks_within(level);
  // The groups along the first axes are consecutive ranks. Where their number divides that of the
  // level, none of them is in two groups of the level.
  int64_t ranks = 1;
  const auto is_across = [&](Axis axis) { return level_ranks % (ranks *= size(axis)) != 0; };
  axes.erase(std::ranges::find_if(axes, is_across), axes.end());
  return axes;
}

int64_t Mesh::ranks_of_a_model() const {
  return int64_t{1} * size(tensor()) * size(context()) * size(pipeline());
}

int64_t Mesh::stage_ranks_within(const MeshLevel& level) const {
  if (level.ranks % ranks_of_a_model() == 0) return level.ranks / size(pipeline());
  return std::gcd(level.ranks, int64_t{1} * size(tensor()) * size(context()));
}

const AxisInfo& Mesh::info(Axis axis) const {
  TESSERA_CHECK(axis.index >= 0 && axis.index < static_cast<int>(axes_.size()),
                "no axis {} in a mesh of {}", axis.index, axes_.size());
  return axes_[static_cast<size_t>(axis.index)];
}

int Mesh::coordinate(int rank, Axis axis) const {
  TESSERA_CHECK(rank >= 0 && rank < ranks_, "no rank {} among {}", rank, ranks_);
  const int inner_ranks = size(tensor()) * size(context());
  if (axis == pipeline()) return rank / inner_ranks % size(axis);
  // The ranks of a stage are counted along tensor, context and data, from the innermost axis
  // outwards. The stride is the difference between neighbours on the axis.
  const int rank_in_stage =
      rank % inner_ranks + inner_ranks * (rank / (inner_ranks * size(pipeline())));
  int stride = 1;
  for (const Axis within : axes_of(info(axis).view)) {
    if (within == axis) break;
    stride *= size(within);
  }
  return rank_in_stage / stride % size(axis);
}

int Mesh::group_ranks(std::span<const Axis> axes) const {
  int ranks = 1;
  for (const Axis axis : axes) ranks *= size(axis);
  return ranks;
}

std::vector<int> Mesh::group(int rank, std::span<const Axis> axes,
                             std::span<const int> stages) const {
  std::vector<int> group;
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto same = [&](Axis axis) { return coordinate(peer, axis) == coordinate(rank, axis); };
    if (!same(pipeline()) && std::ranges::find(axes, pipeline()) == axes.end()) continue;
    const MeshView view = axes.empty() ? MeshView::dense : info(axes[0]).view;
    const bool is_member = std::ranges::all_of(axes_of(view), [&](Axis axis) {
      return std::ranges::find(axes, axis) != axes.end() || same(axis);
    });
    const bool is_in_stage =
        stages.empty() || std::ranges::find(stages, stage(peer)) != stages.end();
    if (is_member && is_in_stage) group.push_back(peer);
  }
  const auto position = [&](int member) {
    int64_t result = 0;
    int64_t stride = 1;
    for (const Axis axis : axes) {
      result += stride * coordinate(member, axis);
      stride *= size(axis);
    }
    return result;
  };
  std::ranges::sort(group, {}, position);
  return group;
}

std::vector<std::vector<Axis>> Mesh::axes_by_level(std::span<const Axis> axes) const {
  std::vector<std::vector<Axis>> result(data().size());
  for (const Axis axis : axes) {
    if (size(axis) == 1) continue;
    size_t level = 0;
    for (const std::span<const Axis> levels : {data(), expert_data()}) {
      const auto found = std::ranges::find(levels, axis);
      if (found != levels.end()) level = static_cast<size_t>(found - levels.begin());
    }
    result[level].push_back(axis);
  }
  std::erase_if(result, [](const std::vector<Axis>& level) { return level.empty(); });
  return result;
}

std::string Mesh::text() const {
  std::vector<std::string> parts;
  const auto add = [&](Axis axis) {
    if (size(axis) > 1) parts.push_back(fmt::format("{} {}", size(axis), name(axis)));
  };
  add(tensor());
  add(context());
  add(pipeline());
  for (const Axis level : data()) add(level);
  if (parts.empty()) return "one rank";
  const std::string experts = size(expert()) > 1 ? fmt::format(", {} expert", size(expert())) : "";
  return join(parts, " x ") + experts;
}

}  // namespace tessera
