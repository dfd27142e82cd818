#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "state/optimizer_config.h"
#include "state/state_shard.h"

namespace tessera {

/// A chain: the matrices of parameters whose units are cut together as if they followed one
/// another, and the ranks that share out their states. Each rank has a run of whole matrices. A
/// matrix at the border of two runs may be cut between ranks.
struct MatrixChain {
  /// Consecutive matrices of a parameter of which a rank has all states.
  struct Run {
    size_t parameter = 0;
    int64_t first = 0;  ///< an index among the parameter's on this rank
    int64_t count = 0;
    std::vector<int64_t> counts;  ///< the counts of all ranks, by position
  };
  /// A matrix of which several ranks have the states, each of some consecutive elements.
  struct Cut {
    size_t parameter = 0;
    int64_t matrix = 0;  ///< its index among the parameter's on this rank
    /// Runs of its elements, by position among the ranks; 0 long for a rank that has none.
    std::vector<ElementRun> pieces;
    int owner = 0;  ///< the position of the rank that orthogonalises it
  };

  size_t parameter = 0;      ///< the first of the parameters
  std::vector<Axis> axes;    ///< the axes over which the units are cut
  std::vector<int> ranks;    ///< by position: in the order of their pieces
  int position = 0;          ///< the position of this rank
  std::vector<Run> runs;     ///< the runs of this rank
  std::vector<Cut> cuts;     ///< the cuts of all ranks, in the order of the memory
  std::vector<double> work;  ///< FLOPs of one step of Newton-Schulz, by position
};

/// Returns the chains of `parameters`, which are indices in the list of `shard` (Muon's part of
/// ZeRO-1; ZAYA1, section V-D, algorithm 1). The ranks that have a piece of a cut matrix send it to
/// its owner, one of them. Owners are chosen so that the largest work of a rank is as small as can
/// be. The work of a matrix that tensor parallelism splits is the work of the whole matrix, or with
/// MuonSplit::blocks of a rank's block. All ranks of the tensor axis cut the same matrices, and all
/// ranks compute the same result.
std::vector<MatrixChain> matrix_chains(const StateShard& shard,
                                       std::span<const ParameterSpec> specs,
                                       std::span<const size_t> parameters,
                                       MuonSplit split = MuonSplit::gather);

/// Work that goes to one of several ranks.
struct SharedWork {
  std::vector<int> ranks;  ///< ascending, at least one; ranks between two of them may be left out
  double work = 0;
};

/// Returns the rank that does each piece of work, so that the largest sum of a rank is as small as
/// can be. `work` is each rank's other work; the pieces are added to it. Pieces come in the order
/// of the ranks: if two of them share a rank, it is the last of one and the first of the next.
std::vector<int> even_out(std::span<const SharedWork> shared, std::vector<double>& work);

}  // namespace tessera
