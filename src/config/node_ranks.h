#pragma once

// Gradients are summed in two levels: within each node first, then across the nodes. A node is a
// group of consecutive ranks with a fast connection, as a rule the ranks of one machine.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// The nodes of a run, found from the machines of its ranks.
struct FoundNodes {
  int64_t ranks = 0;    ///< of each node; all ranks if there is only one node
  std::string why_not;  ///< why several machines are one node; otherwise empty
};

/// Returns the nodes of a run. `machines` names the machine of each rank. Each machine is a node
/// if all have the same number of ranks, which are consecutive, and if that number divides, or is
/// divided by, the number of ranks that share a model. Otherwise all ranks are one node.
FoundNodes find_nodes(const ParallelSection& parallel, std::span<const std::string> machines);

/// Returns the sizes of the two levels of the data axis: within a node and across nodes. There is
/// only one level if `node_ranks` is 0 or the number of all ranks. Throws Error, which names the
/// key and the numbers, if `node_ranks` does not divide the ranks, or if neither of `node_ranks`
/// and the number of ranks that share a model divides the other.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks, int64_t node_ranks);

/// Returns a sentence for each sum of gradients that is taken in one step although there are
/// several nodes: because a model needs several nodes, or because the experts do not fit a node.
std::vector<std::string> sums_across_nodes(const ParallelSection& parallel, int ranks,
                                           int64_t node_ranks);

}  // namespace tessera
