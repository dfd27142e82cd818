#pragma once

// The two levels of the sums of gradients: within each node first, then across the nodes. A node is
// a group of consecutive ranks with a fast connection, as a rule those of one machine.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// The nodes of a run, found from the machines of its ranks.
struct FoundNodes {
  int64_t ranks = 0;    ///< of a node; the number of all ranks: gradients are summed in one step
  std::string why_not;  ///< the reason for one step if there are several machines; otherwise empty
};

/// Returns the nodes of ranks on these machines, whose names are given by rank. A machine is a node
/// if all machines have the same number of ranks, which are consecutive, and if nodes hold whole
/// groups of ranks that share a model, or such groups hold whole nodes.
FoundNodes find_nodes(const ParallelSection& parallel, std::span<const std::string> machines);

/// Returns the sizes of the two levels of the data axis: within a node and across nodes. There is
/// only one level if `node_ranks` is 0 or the number of all ranks. Throws Error, which names the
/// key and the numbers, if `node_ranks` does not divide the ranks, or neither it nor the number of
/// ranks that share a model divides the other.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks, int64_t node_ranks);

/// Returns sentences about the sums of gradients that are not taken by node although there are
/// several nodes, because experts do not fit into a node, or a model needs several nodes.
std::vector<std::string> sums_across_nodes(const ParallelSection& parallel, int ranks,
                                           int64_t node_ranks);

}  // namespace tessera
