#include "config/levels.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns the number of ranks that share a model, and with it the sequences of a micro-batch.
int64_t ranks_of_a_model(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context * parallel.pipeline;
}

/// Returns the number of ranks that share a stage of a model: all that share the model, without a
/// pipeline.
int64_t ranks_of_a_stage(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context;
}

/// Returns the most ranks of a group that are in one pipeline stage. Only they sum gradients.
int64_t group_ranks_of_a_stage(const ParallelSection& parallel, int64_t group_ranks) {
  if (ranks_of_a_model(parallel) <= group_ranks) return group_ranks / parallel.pipeline;
  return std::min(group_ranks, ranks_of_a_stage(parallel));
}

/// Returns whether one of the two numbers of ranks divides the other.
bool nest(int64_t ranks, int64_t other) { return ranks % other == 0 || other % ranks == 0; }

/// Groups of consecutive ranks, each of which has a part of the machines to itself.
struct ConsecutiveGroups {
  std::ptrdiff_t ranks = 0;        ///< of each group, as the first one has them
  std::ptrdiff_t first_other = 0;  ///< the first rank that is not where these groups want it
};

/// Returns the groups of ranks with equal parts. `part_of` returns the part of a rank.
template <typename PartOf>
ConsecutiveGroups consecutive_groups(std::span<const RankPlace> places, PartOf&& part_of) {
  const auto part = [&](std::ptrdiff_t rank) { return part_of(places[static_cast<size_t>(rank)]); };
  const std::ptrdiff_t all = std::ssize(places);
  std::ptrdiff_t ranks = 0;
  while (ranks < all && part(ranks) == part(0)) ++ranks;
  std::set<decltype(part(0))> met;
  for (std::ptrdiff_t rank = 0; rank < all; ++rank) {
    const bool begins_group = rank % ranks == 0;
    if (begins_group ? !met.insert(part(rank)).second : part(rank) != part(rank - 1)) {
      return {ranks, rank};
    }
  }
  return {ranks, all};
}

/// Returns the ranks of each part of the machines that `part` numbers; 0 if the parts are no level.
int64_t ranks_of_parts(const ParallelSection& parallel, std::span<const RankPlace> places,
                       int CorePlace::*part) {
  const auto number = [&](const RankPlace& place) { return place.cores.*part; };
  if (std::ranges::any_of(places, [&](const RankPlace& place) { return number(place) < 0; })) {
    return 0;
  }
  const ConsecutiveGroups groups = consecutive_groups(
      places, [&](const RankPlace& place) { return std::pair(place.machine, number(place)); });
  const bool are_level = groups.ranks > 1 && groups.first_other == std::ssize(places) &&
                         std::ssize(places) % groups.ranks == 0 &&
                         nest(ranks_of_a_model(parallel), groups.ranks);
  return are_level ? groups.ranks : 0;
}

/// Returns the levels within the machines, innermost first.
std::vector<MeshLevel> levels_of_parts(const ParallelSection& parallel,
                                       std::span<const RankPlace> places) {
  std::vector<MeshLevel> levels;
  const int64_t package = ranks_of_parts(parallel, places, &CorePlace::package);
  const int64_t numa = ranks_of_parts(parallel, places, &CorePlace::numa);
  if (package > 0) levels.push_back({"package", package});
  if (numa > 0 && (package == 0 || nest(numa, package))) levels.push_back({"numa", numa});
  // A NUMA node may be a part of a package or several of them.
  if (levels.size() == 2 && numa <= package) std::swap(levels[0], levels[1]);
  return levels;
}

/// Returns a group of the level in words.
std::string group_text(const MeshLevel& level) {
  if (level.name == "numa") return "a NUMA node";
  if (level.name.starts_with("group.")) return "a group of the level " + level.name;
  return "a " + level.name;
}

/// Returns the levels of different ranks, without those of all ranks.
std::vector<MeshLevel> distinct_levels(std::span<const MeshLevel> levels, int ranks) {
  std::vector<MeshLevel> result;
  for (const MeshLevel& level : levels) {
    if (!result.empty() && result.back().ranks == level.ranks) result.pop_back();
    if (level.ranks < ranks) result.push_back(level);
  }
  return result;
}

}  // namespace

FoundLevels find_levels(const ParallelSection& parallel, std::span<const RankPlace> places) {
  if (places.empty()) return {};
  const std::ptrdiff_t ranks = std::ssize(places);
  const auto [node_ranks, first_other] =
      consecutive_groups(places, [](const RankPlace& place) { return place.machine; });
  if (first_other < ranks) {
    return {{},
            fmt::format("rank {} is on {}: the machines do not have {} consecutive ranks each, as "
                        "the first has",
                        first_other, places[static_cast<size_t>(first_other)].machine, node_ranks)};
  }
  if (ranks % node_ranks != 0) {
    return {{},
            fmt::format("the last machine has {} ranks, and the others {}", ranks % node_ranks,
                        node_ranks)};
  }
  const int64_t model_ranks = ranks_of_a_model(parallel);
  if (node_ranks < ranks && !nest(model_ranks, node_ranks)) {
    return {{},
            fmt::format("{} ranks share a model, and a machine has {}", model_ranks, node_ranks)};
  }
  std::vector<MeshLevel> levels = levels_of_parts(parallel, places);
  levels.push_back({std::string(kNode), node_ranks});
  return {std::move(levels), ""};
}

std::vector<MeshLevel> levels_of_one_machine(int ranks) { return {{std::string(kNode), ranks}}; }

std::vector<MeshLevel> listed_levels(const ParallelSection& parallel, int ranks) {
  const int64_t model_ranks = ranks_of_a_model(parallel);
  std::vector<MeshLevel> levels;
  int64_t level_ranks = 1;
  for (size_t i = 0; i < parallel.levels.size(); ++i) {
    level_ranks *= parallel.levels[i];
    const bool is_last = i + 1 == parallel.levels.size();
    const MeshLevel level{is_last ? std::string(kNode) : group_name(level_ranks), level_ranks};
    if (ranks % level_ranks != 0) {
      throw Error(
          "parallel.levels ({}): the {} ranks of {} do not divide the {} ranks; choose levels "
          "whose product divides {}, or [{}] to sum gradients in one step",
          parallel.levels, level_ranks, group_text(level), ranks, ranks, ranks);
    }
    // A group of all ranks has whole models in any case.
    if (level_ranks < ranks && !nest(model_ranks, level_ranks)) {
      throw Error(
          "parallel.levels ({}): of the {} ranks of {} and the {} ranks that share a model neither "
          "divides the other; choose a divisor or a multiple of {}, or [{}] to sum gradients in "
          "one step",
          parallel.levels, level_ranks, group_text(level), model_ranks, model_ranks, ranks);
    }
    levels.push_back(level);
  }
  return levels;
}

std::vector<int> data_levels(const ParallelSection& parallel, int ranks,
                             std::span<const MeshLevel> levels) {
  const int64_t model_ranks = ranks_of_a_model(parallel);
  std::vector<int> sizes;
  int64_t models = 1;  // within the level
  for (const MeshLevel& level : distinct_levels(levels, ranks)) {
    const int64_t within = std::max<int64_t>(1, level.ranks / model_ranks);
    sizes.push_back(static_cast<int>(within / models));
    models = within;
  }
  sizes.push_back(static_cast<int>(ranks / model_ranks / models));
  return sizes;
}

std::vector<std::string> sums_across_levels(const ParallelSection& parallel, int ranks,
                                            std::span<const MeshLevel> levels) {
  std::vector<std::string> sentences;
  const bool staged = parallel.pipeline > 1;
  const int64_t stage_ranks = ranks_of_a_stage(parallel);
  for (const MeshLevel& level : distinct_levels(levels, ranks)) {
    const std::string group = group_text(level);
    if (level.ranks % stage_ranks != 0) {
      sentences.push_back(fmt::format(
          "{} ranks share a {}, and {} has {}: the sums among those that share one are not taken "
          "by {}",
          stage_ranks, staged ? "stage of a model" : "model", group, level.ranks, level.name));
    }
    const int64_t summing_ranks = group_ranks_of_a_stage(parallel, level.ranks);
    if (!nest(parallel.expert, summing_ranks)) {
      sentences.push_back(fmt::format(
          "parallel.expert is {}, and {} has {} ranks{}, of which neither divides the other: the "
          "gradients of experts are not summed by {}",
          parallel.expert, group, summing_ranks, staged ? " of a stage" : "", level.name));
    }
  }
  return sentences;
}

}  // namespace tessera
