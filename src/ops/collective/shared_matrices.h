#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/piece_indices.h"
#include "program/builder.h"

namespace tessera {

// Muon orthogonalises whole matrices, but a boundary between the ranks' pieces of flat memory
// (comm/flat_pieces.h) may cut a matrix. The operations here send the pieces of such a matrix to
// one rank, its owner, and send the results back (ZAYA1, algorithm 1). Each message goes to the
// rank that needs it, and to no other.

/// A matrix of which several ranks hold a run of consecutive elements each.
struct SharedMatrix {
  Shape shape;                      ///< [1, rows, columns] of the whole matrix at its owner
  std::vector<ElementRun> pieces;   ///< the run of each rank, by position among the ranks
  int owner = 0;                    ///< the position of the rank that gets the whole matrix
  Distribution distribution;        ///< the distribution of the whole matrix
  Distribution piece_distribution;  ///< the distribution of a piece [1, elements]
};

/// The ranks that share matrices, and the matrices of which this rank has a piece.
struct MatrixSharing {
  std::string name;        ///< the name of the messages, which is the same on all ranks
  std::vector<Axis> axes;  ///< the axes on which the ranks' coordinates differ
  std::vector<int> ranks;  ///< the number of the rank at each position
  int position = 0;        ///< the position of this rank
  std::vector<SharedMatrix> matrices;
};

// Both functions take `pieces`: this rank's piece [1, elements] of each matrix. They have no
// gradient.

/// Sends pieces to the owners of their matrices. Returns the whole matrix for each matrix that this
/// rank owns, and a null value for each of the others.
std::vector<Value> gather_at_owners(Builder& builder, const MatrixSharing& sharing,
                                    std::span<const Value> pieces);

/// Sends each rank its pieces of `matrices`, which are null except at their owners. What a rank
/// receives overwrites its `pieces`.
void return_to_pieces(Builder& builder, const MatrixSharing& sharing,
                      std::span<const Value> matrices, std::span<const Value> pieces);

}  // namespace tessera
