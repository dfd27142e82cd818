#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// The nodes of a run, found from the machines of its ranks.
struct FoundNodes {
  int64_t ranks = 0;    ///< of a node; all ranks: gradients are summed in one step
  std::string why_not;  ///< why in one step although there are several machines; else empty
};

/// Returns the nodes of ranks on these machines, whose names are given by rank. A machine is a node
/// if all have equally many ranks, and consecutive ones, and if nodes and groups of ranks that
/// share a model fit into each other.
FoundNodes find_nodes(const ParallelSection& parallel, std::span<const std::string> machines);

/// Returns the sizes of the levels of the data axis: within a node, then across nodes. There is
/// only one level if `node_ranks` is 0 or the number of all ranks. Throws Error, which names the
/// key and the numbers, if nodes do not divide the ranks or do not fit with the groups of ranks
/// that share a model.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks, int64_t node_ranks);

/// Returns sentences about the sums of gradients that are not taken by node although there are
/// several nodes, because experts do not fit into a node, or a model needs several nodes.
std::vector<std::string> sums_across_nodes(const ParallelSection& parallel, int ranks,
                                           int64_t node_ranks);

}  // namespace tessera
