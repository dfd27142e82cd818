#pragma once

#include <functional>
#include <string>

#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

class Processes;

/// Returns the mesh of a run of `ranks` ranks that [parallel] describes: data parallelism takes the
/// ranks that its sizes leave over. The configuration is resolved (see resolve()). Nodes have
/// parallel.node_ranks ranks, or `found_node_ranks` if that key is 0 (see find_nodes()). The found
/// number holds for one start of the run and is not part of the configuration. Throws Error that
/// names the file, the keys and the numbers if the sizes do not divide the ranks, or the model or
/// the batches do not divide over them.
Mesh mesh_of(const RunConfig& config, int ranks, int64_t found_node_ranks = 0);

/// Returns the mesh of a run whose ranks are processes, or `threads` threads if `processes` is
/// null. Finds the nodes from the processes' machines. On the first rank, calls `say` with a
/// sentence for each sum of gradients that is not taken by node although there are several nodes or
/// machines.
Mesh mesh_of_run(const RunConfig& config, const Processes* processes, int threads,
                 const std::function<void(const std::string& sentence)>& say);

/// Returns the mesh for a model that computes without training. Batches are not checked, and no
/// nodes are needed, because there are no gradients to sum.
Mesh mesh_of_model(const RunConfig& config, int ranks);

/// Returns the distribution of the experts over the ranks that [parallel] asks for.
ExpertLayout expert_layout(const ParallelSection& parallel);

/// Returns the number of ranks of a mesh that have sequences of their own.
int64_t data_ranks(const Mesh& mesh);
/// Returns a rank's index among the data-parallel ranks, which is also the index of its micro-batch
/// among those that run side by side. Ranks that share their sequences have the same index.
int64_t data_rank(const MeshRank& mesh_rank);
/// Returns "4 data-parallel ranks".
std::string data_ranks_text(int64_t ranks);

}  // namespace tessera
