#pragma once

#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Groups of ranks in which collectives are measured at once, as those of an axis of a mesh call at
/// once: they share the links of their machines.
struct CollectiveGroups {
  std::vector<std::vector<int>> groups;  ///< all of one size, without a rank in common
  int machines = 1;                      ///< the most machines of a group

  bool operator==(const CollectiveGroups&) const = default;
};

/// Returns the ways in which ranks are divided into groups of `count`. `hosts` has the machine of
/// each rank. The first way has neighbours together, as the axes that take the nearest ranks. If
/// groups of ranks that are far apart are of another number of machines, they are the second, as
/// the outer axes. If `count` does not divide the ranks, there is one group: the first ranks.
std::vector<CollectiveGroups> collective_groups(int count, std::span<const std::string> hosts);

}  // namespace tessera
