#pragma once

#include <span>
#include <string>

#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// The ranks of one data-parallel group: those that share the sequences of a micro-batch.
int64_t ranks_of_a_model(const ParallelSection& parallel);

/// The mesh of a run of `ranks` ranks, laid out as [parallel] says: data parallelism takes the
/// ranks that its sizes leave over. The configuration is resolved (see resolve()). Throws Error
/// that names the file, the keys and the numbers if the sizes do not divide the ranks, or the model
/// or the batches do not divide over them.
Mesh mesh_of(const RunConfig& config, int ranks);

/// The same for a model that computes without training: nothing is said of batches.
Mesh mesh_of_model(const RunConfig& config, int ranks);

/// Sets parallel.node_ranks from the name of each rank's machine, where it is 0. If the machines
/// do not have equally many ranks, or not consecutive ones, or nodes and groups of ranks that share
/// a model do not fit into each other, it becomes the number of all ranks: sums are then taken in
/// one step. Returns why, or an empty text.
std::string set_node_ranks(ParallelSection& parallel, std::span<const std::string> machines);

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
