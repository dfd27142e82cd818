#pragma once

#include <functional>
#include <string>

#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

class Processes;

/// The mesh of a run of `ranks` ranks, laid out as [parallel] says: data parallelism takes the
/// ranks that its sizes leave over. The configuration is resolved (see resolve()). Nodes have as
/// many ranks as parallel.node_ranks says, or as were found where it is 0 (see find_nodes()). What
/// was found is of one start, and no part of the configuration. Throws Error that names the file,
/// the keys and the numbers if the sizes do not divide the ranks, or the model or the batches do
/// not divide over them.
Mesh mesh_of(const RunConfig& config, int ranks, int64_t found_node_ranks = 0);

/// The same for ranks that are processes, or if there are none, so many threads. Nodes are found by
/// the processes' machines. On the first rank, `say` gets what of the gradients is not summed by
/// node though there are several.
Mesh mesh_of_run(const RunConfig& config, const Processes* processes, int threads,
                 const std::function<void(const std::string& sentence)>& say);

/// The same for a model that computes without training: nothing is said of batches, and there are
/// no gradients whose sums nodes would order.
Mesh mesh_of_model(const RunConfig& config, int ranks);

/// How the experts lie over the ranks, as [parallel] says.
ExpertLayout expert_layout(const ParallelSection& parallel);

/// The ranks of a mesh that have sequences of their own.
int64_t data_ranks(const Mesh& mesh);
/// The number of a rank among them: of several micro-batches side by side it has this one. Ranks
/// that share their sequences have one number.
int64_t data_rank(const MeshRank& place);
/// So many of them, in words.
std::string data_ranks_text(int64_t ranks);

}  // namespace tessera
