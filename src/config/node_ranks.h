#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// What the machines of a run's ranks say of its nodes.
struct FoundNodes {
  int64_t ranks = 0;    ///< of a node; the number of all ranks: gradients are summed in one step
  std::string why_not;  ///< why they are although there are several machines; else empty
};

/// The nodes of ranks on these machines, whose names are given by rank. A machine is a node if all
/// have equally many ranks, and consecutive ones, and if nodes and groups of ranks that share a
/// model fit into each other.
FoundNodes find_nodes(const ParallelSection& parallel, std::span<const std::string> machines);

/// The levels of the data axis: its ranks within a node, and those of other nodes. It has one if
/// `node_ranks` is 0 or the number of all ranks. Throws Error, which names the key and the numbers,
/// if nodes do not divide the ranks or do not fit with those that share a model.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks, int64_t node_ranks);

/// What of the gradients is not summed by node although there are levels, in sentences: where
/// experts do not fit into a node, or a model needs several.
std::vector<std::string> sums_across_nodes(const ParallelSection& parallel, int ranks,
                                           int64_t node_ranks);

}  // namespace tessera
