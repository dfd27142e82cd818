#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"
#include "comm/piece_indices.h"

namespace tessera {

/// How the flat memory of a unit of parameters is cut over the ranks of some axes. The pieces
/// follow one another in the memory. Piece number i is that of the ranks whose coordinates on the
/// axes, the first counting slowest, make the number i. So where the data axis has levels, the
/// ranks of a node scatter the memory among them first, and each hands on a part of its own piece.
struct FlatPieces {
  std::vector<Axis> axes;      ///< outermost split first; those of one rank too
  std::vector<int64_t> sizes;  ///< of all pieces, in elements; 0 for one that has nothing

  /// Whether the memory is cut at all.
  bool cut() const { return !axes.empty(); }
  /// The elements of all pieces.
  int64_t elements() const;
  /// The piece of a rank.
  ElementRun of(const Mesh& mesh, int rank) const { return of(mesh, rank, axes.size()); }
  /// What the ranks have together that share its coordinates on the first `outer` axes.
  ElementRun of(const Mesh& mesh, int rank, size_t outer) const;
  /// The type of a piece on each of the axes.
  TypeOnAxis type() const;
  /// How pieces lie of what lies so.
  Distribution distribution(Distribution whole) const;
};

}  // namespace tessera
