#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/piece_indices.h"
#include "program/builder.h"

namespace tessera {

/// A matrix of which several ranks have some consecutive elements each, and that one of them gets
/// whole.
struct SharedMatrix {
  Shape shape;                     ///< [1, rows, columns], what a rank has of it once it is whole
  std::vector<ElementRun> pieces;  ///< of its elements, by position among the ranks
  int owner = 0;                   ///< a position
  Distribution lies;               ///< of the whole matrix
  Distribution piece_lies;         ///< of a piece [1, elements]
};

/// The ranks that share matrices, and the matrices of which one of them has a piece.
struct MatrixSharing {
  std::string name;        ///< of the calls: the same on all ranks
  std::vector<Axis> axes;  ///< on which they have different places
  std::vector<int> ranks;  ///< by position
  int position = 0;        ///< of this rank
  std::vector<SharedMatrix> matrices;
};

// How ranks pass on matrices that lie over the cut between two of them (ZAYA1, algorithm 1): each
// message goes to the rank that needs it, and to no other. Both take `pieces`, this rank's of each
// matrix, [1, elements]. There is no gradient.

/// Sends pieces to the matrices' owners. Returns the matrices of which this rank is the owner; the
/// others are null.
std::vector<Value> gather_at_owners(Builder& builder, const MatrixSharing& sharing,
                                    std::span<const Value> pieces);

/// Sends each rank its pieces of `matrices`, which are null but at their owners, in place of
/// `pieces`.
void return_to_pieces(Builder& builder, const MatrixSharing& sharing,
                      std::span<const Value> matrices, std::span<const Value> pieces);

}  // namespace tessera
