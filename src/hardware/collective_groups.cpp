#include "hardware/collective_groups.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {

/// Returns groups of `count` ranks: of each, rank `stride` after rank.
CollectiveGroups groups_with(int stride, int count, int groups,
                             std::span<const std::string> hosts) {
  CollectiveGroups result;
  for (int i = 0; i < groups; ++i) {
    const int first = i / stride * stride * count + i % stride;
    std::vector<int>& group = result.groups.emplace_back();
    std::set<std::string> machines;
    for (int member = 0; member < count; ++member) {
      group.push_back(first + member * stride);
      machines.insert(hosts[static_cast<size_t>(group.back())]);
    }
    result.machines = std::max(result.machines, static_cast<int>(machines.size()));
  }
  return result;
}

}  // namespace

std::vector<CollectiveGroups> collective_groups(int count, std::span<const std::string> hosts) {
  const auto ranks = static_cast<int>(hosts.size());
  if (ranks % count != 0) return {groups_with(1, count, 1, hosts)};
  const int groups = ranks / count;
  std::vector<CollectiveGroups> result{groups_with(1, count, groups, hosts)};
  CollectiveGroups apart = groups_with(groups, count, groups, hosts);
  if (apart.machines != result.front().machines) result.push_back(std::move(apart));
  return result;
}

}  // namespace tessera
