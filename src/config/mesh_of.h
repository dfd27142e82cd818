#pragma once

#include <functional>
#include <span>
#include <string>

#include "comm/mesh.h"
#include "config/run_config.h"

// The mesh of ranks that [parallel] describes. Data parallelism uses all ranks that the other sizes
// leave: with parallel.tensor = 2 and 8 ranks, there are 4 data-parallel groups.

namespace tessera {

class Processes;

/// Returns the mesh for training on `ranks` ranks. The configuration is resolved (see resolve()).
/// The levels of the network are those of parallel.levels, or `found` if that key is empty, and
/// those that numbers of ranks in [shard] need (add_shard_groups()).
/// Throws Error that names the file, the keys and the numbers if the sizes do not divide the ranks,
/// if the model or the batches do not divide over the ranks, if a phase's micro-batches do not suit
/// the schedule of the pipeline, or if [shard] does not suit the mesh (shard_axes()).
Mesh mesh_of(const RunConfig& config, int ranks, std::span<const MeshLevel> found);
/// Returns the mesh for training on one machine.
Mesh mesh_of(const RunConfig& config, int ranks);

/// Returns the mesh for training on one rank, by a command that runs no more. Throws Error, with
/// the keys, if [parallel] asks for several, and as mesh_of() does.
Mesh mesh_of_one_rank(const RunConfig& config);

/// Returns the mesh for a training that starts now. Its ranks are `processes`, which all call this,
/// or `threads` threads if `processes` is null. If parallel.levels is empty, the levels of the
/// network are found from where the processes run (find_levels()). On several levels, gradients
/// should be summed within each level first. Where that is not possible, the first rank calls `say`
/// with a sentence about the reason.
Mesh mesh_of_started_ranks(const RunConfig& config, Processes* processes, int threads,
                           const std::function<void(const std::string& sentence)>& say);

/// Returns the mesh for a model that computes without training. Batches are not checked, and no
/// levels are needed, because there are no gradients to sum. [parallel] may come from elsewhere
/// than the model: throws Error as mesh_of() does, and if the model cannot be cut into its chunks.
Mesh mesh_for_inference(const RunConfig& config, int ranks);

/// Returns how [parallel] distributes the experts over the ranks.
ExpertLayout expert_layout(const ParallelSection& parallel);

/// Returns the number of ranks of a mesh that have sequences of their own.
int64_t data_ranks(const Mesh& mesh);
/// Returns a rank's index among the data-parallel ranks, which is also the index of its micro-batch
/// among those that run side by side. Ranks that share their sequences have the same index.
int64_t data_rank(const MeshRank& mesh_rank);
/// Returns a text such as "4 data-parallel ranks".
std::string data_ranks_text(int64_t ranks);

}  // namespace tessera
