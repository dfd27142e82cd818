#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/piece_indices.h"
#include "program/builder.h"

namespace tessera {

/// A matrix of which several ranks hold consecutive elements each. One of them, the owner, gets the
/// whole.
struct SharedMatrix {
  Shape shape;                      ///< [1, rows, columns], that of the whole matrix at its owner
  std::vector<ElementRun> pieces;   ///< runs of its elements, by position among the ranks
  int owner = 0;                    ///< the owner's position
  Distribution distribution;        ///< that of the whole matrix
  Distribution piece_distribution;  ///< that of a piece [1, elements]
};

/// The ranks that share matrices, and the matrices of which this rank has a piece.
struct MatrixSharing {
  std::string name;        ///< that of the calls: the same on all ranks
  std::vector<Axis> axes;  ///< the axes on which their coordinates differ
  std::vector<int> ranks;  ///< by position
  int position = 0;        ///< the position of this rank
  std::vector<SharedMatrix> matrices;
};

// Exchanges of matrices that are cut between ranks (ZAYA1, algorithm 1): each message goes to the
// rank that needs it, and to no other. Both take `pieces`, this rank's piece of each matrix, [1,
// elements]. There is no gradient.

/// Sends pieces to the owners of their matrices. Returns the whole of each matrix that this rank
/// owns, and a null value for each of the others.
std::vector<Value> gather_at_owners(Builder& builder, const MatrixSharing& sharing,
                                    std::span<const Value> pieces);

/// Sends each rank its pieces of `matrices`, which are null except at their owners. They replace
/// `pieces`.
void return_to_pieces(Builder& builder, const MatrixSharing& sharing,
                      std::span<const Value> matrices, std::span<const Value> pieces);

}  // namespace tessera
