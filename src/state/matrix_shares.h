#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "state/optimizer_config.h"
#include "state/state_shard.h"

namespace tessera {

/// Units whose states are cut together (StateShard::cut_together()): their matrices follow each
/// other in one flat memory, of which each rank has a piece. A piece has runs of whole matrices,
/// one for each parameter of which it has any. A matrix in which a piece ends is cut: several ranks
/// have parts of it. A rank's position is its index in `ranks`.
struct MatrixChain {
  /// Consecutive whole matrices of one parameter, of which this rank has all states.
  struct Run {
    size_t parameter = 0;
    int64_t first_matrix = 0;     ///< its index among the parameter's matrices on these ranks
    int64_t count = 0;            ///< the number of matrices
    std::vector<int64_t> counts;  ///< the same number of every rank, by position
  };
  /// A matrix of which several ranks have the states, each of some consecutive elements.
  struct Cut {
    size_t parameter = 0;
    int64_t matrix = 0;              ///< an index as in Run
    std::vector<ElementRun> pieces;  ///< by position: the elements that the rank has, maybe none
    int owner = 0;                   ///< the position of the rank that orthogonalises the matrix
  };

  size_t first_parameter = 0;  ///< the first parameter of the chain, an index in `specs`
  std::vector<Axis> axes;      ///< the axes over which the units are cut
  std::vector<int> ranks;      ///< in the order of their pieces
  int position = 0;            ///< the position of this rank
  std::vector<Run> runs;       ///< the runs of this rank
  std::vector<Cut> cuts;       ///< the cuts of all ranks, in the order of the memory
  std::vector<double> work;    ///< FLOPs of one step of Newton-Schulz with owned cuts, by position
};

/// Returns the chains of `parameters`, which are indices in `specs` (Muon's part of ZeRO-1; ZAYA1,
/// section V-D, algorithm 1). The owner of a cut matrix is one of the ranks that have a piece of
/// it; the others send their pieces there. Owners are chosen so that the largest work of a rank is
/// as small as can be. If tensor parallelism splits a matrix, its work is that of the whole matrix.
/// With MuonSplit::blocks it is that of one rank's block. All ranks find the same cuts and owners,
/// so they need no messages to agree.
std::vector<MatrixChain> matrix_chains(const StateShard& shard,
                                       std::span<const ParameterSpec> specs,
                                       std::span<const size_t> parameters,
                                       MuonSplit split = MuonSplit::gather);

/// A piece of work that one of several ranks is to do.
struct SharedWork {
  std::vector<int> ranks;  ///< those that can do it: ascending, at least one, gaps allowed
  double work = 0;
};

/// Returns the rank that does each piece of work, chosen so that the largest work of a rank is as
/// small as can be. `rank_work` is each rank's other work; the chosen pieces are added to it.
/// Requires that no piece begins before the last rank of the piece before it.
std::vector<int> assign_evenly(std::span<const SharedWork> shared, std::vector<double>& rank_work);

}  // namespace tessera
