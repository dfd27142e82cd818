#pragma once

// The levels of the network: groups of consecutive ranks, each a part of a larger one, such as the
// ranks of a package, of a node, and all. Gradients are summed within the groups of a level first,
// then among the groups of the next one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "comm/processes.h"
#include "config/run_config.h"

namespace tessera {

/// The levels within a run, found from where its ranks run.
struct FoundLevels {
  std::vector<MeshLevel> levels;  ///< innermost first, the last one a machine; none if `why_not`
  std::string why_not;            ///< why several machines form no level; otherwise empty
};

/// Returns the levels of a run. Each machine is a node if all have the same number of ranks, which
/// are consecutive, and if that number divides, or is divided by, the number of ranks that share a
/// model. The packages of a machine are a level within nodes, and its NUMA nodes another one, under
/// the same conditions, if every rank runs within one of them and each has several ranks.
FoundLevels find_levels(const ParallelSection& parallel, std::span<const RankPlace> places);

/// Returns the levels of ranks on one machine of which no more is known: it is the node.
std::vector<MeshLevel> levels_of_one_machine(int ranks);

/// Returns the levels that parallel.levels lists. The last one is the node. Throws Error, which
/// names the key and the numbers, if the ranks of a level do not divide all ranks, or if neither
/// they nor the ranks that share a model divide the other.
std::vector<MeshLevel> listed_levels(const ParallelSection& parallel, int ranks);

/// Returns the sizes of the levels of the data axis. Each level of the network has one, but levels
/// of the same ranks have it together. A level of all ranks has the outermost one. The size of a
/// level within the ranks that share a model is 1.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks,
                             std::span<const MeshLevel> levels);

/// Returns a sentence for each sum of gradients that is not taken level by level, although there
/// are levels: because several groups of a level share a model, or because the experts do not fit
/// one.
std::vector<std::string> sums_across_levels(const ParallelSection& parallel, int ranks,
                                            std::span<const MeshLevel> levels);

}  // namespace tessera
