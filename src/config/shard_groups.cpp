#include "config/shard_groups.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// Adds levels for groups of ranks that hold the same weights.
class GroupAdder {
 public:
  GroupAdder(const ParallelSection& parallel, int ranks, std::vector<MeshLevel>& levels)
      : context_(parallel.context),
        copy_ranks_(parallel.tensor * parallel.pipeline),
        copies_(ranks / copy_ranks_),
        levels_(levels) {}

  /// Adds the level of the group that a key asks for, unless the mesh has it in any case.
  void add(const char* key, const ShardPlacement& placement) {
    const int64_t group = placement.ranks;
    if (group <= 1 || copies_ == 1 || group == copies_) return;
    if (!may_be_group(group)) {
      throw Error(
          "{} ({}): a group of {} of the {} ranks that hold the same weights does not nest with "
          "{}; choose one of {}",
          key, group, group, copies_, limits_text(), fmt::join(possible_groups(), ", "));
    }
    const int64_t level_ranks = group * copy_ranks_;
    const auto next = std::ranges::find_if(
        levels_, [&](const MeshLevel& level) { return level.ranks >= level_ranks; });
    if (next != levels_.end() && next->ranks == level_ranks) return;
    levels_.insert(next, {group_name(level_ranks), level_ranks});
  }

 private:
  /// Returns whether that many neighbours along the context axis and the data axis may be a group.
  bool may_be_group(int64_t group) const {
    const int64_t level_ranks = group * copy_ranks_;
    return group % context_ == 0 && copies_ % group == 0 &&
           std::ranges::all_of(levels_, [&](const MeshLevel& level) {
             return level.ranks % level_ranks == 0 || level_ranks % level.ranks == 0;
           });
  }
  std::vector<int64_t> possible_groups() const {
    std::vector<int64_t> groups{1};
    for (int64_t group = 2; group < copies_; ++group) {
      if (may_be_group(group)) groups.push_back(group);
    }
    groups.push_back(copies_);
    return groups;
  }
  /// Returns what a group nests with, in words.
  std::string limits_text() const {
    std::vector<std::string> texts{fmt::format("all {}", copies_)};
    if (context_ > 1) texts.push_back(fmt::format("parallel.context ({})", context_));
    for (const MeshLevel& level : levels_) {
      texts.push_back(fmt::format("the level \"{}\" of {} ranks", level.name, level.ranks));
    }
    std::string text = join(texts, ", ");
    if (copy_ranks_ > 1) {
      text += fmt::format(", where {} ranks (tensor, pipeline) hold one copy of the weights",
                          copy_ranks_);
    }
    return text;
  }

  int64_t context_;
  int64_t copy_ranks_;  // among which one copy of the weights is divided
  int64_t copies_;      // of the weights, and so the number of ranks that hold the same ones
  std::vector<MeshLevel>& levels_;
};

}  // namespace

void add_shard_groups(const RunConfig& config, int ranks, std::vector<MeshLevel>& levels) {
  GroupAdder groups(config.parallel, ranks, levels);
  groups.add("shard.weights", config.shard.weights);
  groups.add("shard.gradients", config.shard.gradients);
  groups.add("shard.optimizer", config.shard.optimizer);
  groups.add("shard.secondary", config.shard.secondary);
  const ParallelSection& parallel = config.parallel;
  if (!config.shard.expert_aware && parallel.expert % parallel.tensor == 0) {
    groups.add("parallel.expert", {.ranks = parallel.expert / parallel.tensor});
  }
}

}  // namespace tessera
