#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "state/optimizer_config.h"
#include "state/unit_shard.h"

namespace tessera {

/// A matrix of which several ranks have the states, each of some consecutive elements.
struct MatrixCut {
  size_t parameter = 0;
  int64_t matrix = 0;  ///< which of the parameter's, on this rank
  std::vector<ElementRun>
      pieces;     ///< of the matrix, by position among the ranks; 0 long for others
  int owner = 0;  ///< the position of the rank that orthogonalises it
};

/// Matrices of which a rank has all states: some of a parameter that follow one another.
struct MatrixRun {
  size_t parameter = 0;
  int64_t first = 0;
  int64_t count = 0;
  std::vector<int64_t> counts;  ///< of all ranks, by position
};

/// Parameters whose units are cut together, and what the ranks that share out their states have.
struct MatrixChain {
  size_t parameter = 0;         ///< the first of them
  std::vector<Axis> axes;       ///< over which they are cut
  std::vector<int> ranks;       ///< in the order of their pieces: by position
  int position = 0;             ///< of this rank among the ranks
  std::vector<MatrixRun> runs;  ///< of this rank
  std::vector<MatrixCut> cuts;  ///< of all ranks, in the order of the memory
  std::vector<double> work;     ///< FLOPs of one step of Newton-Schulz, by position
};

/// The matrices of `parameters`, numbers of them in the list of `shards`, whose states ranks share
/// out (Muon's part of ZeRO-1; ZAYA1, section V-D, algorithm 1). Most matrices are whole on a rank.
/// One that is cut is whole on one of the ranks that have a piece, once the others have sent
/// theirs. Which one is chosen so that the rank with the most work has as little as it can.
///
/// A matrix that tensor parallelism splits has the work of the whole one, or by blocks that of a
/// rank's block. All ranks come to the same answer. Matrices that tensor parallelism splits are cut
/// at the same places on all ranks of the tensor axis.
std::vector<MatrixChain> matrix_chains(const StateShards& shards,
                                       std::span<const ParameterSpec> specs,
                                       std::span<const size_t> parameters, int rank,
                                       MuonSplit split = MuonSplit::gather);

/// Work that one of some ranks may do.
struct SharedWork {
  std::vector<int> ranks;  ///< ascending, at least one; ranks between two of them may be left out
  double work = 0;
};

/// Returns which rank does each piece of work. `work` is what the ranks have to do besides, to
/// which the work is added. Pieces come in the order of the ranks, and follow one another: a rank
/// that two may go to is the last of one and the first of the next. The largest sum is as small as
/// it can be.
std::vector<int> even_out(std::span<const SharedWork> shared, std::vector<double>& work);

}  // namespace tessera
