#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"
#include "comm/piece_indices.h"

namespace tessera {

/// The pieces that the flat memory of a unit of parameters is cut into over the ranks of some axes.
/// They follow one another in the memory. Piece i is that of the ranks whose coordinates on the
/// axes, the first counting slowest, make the number i. So where the data axis has levels, the
/// ranks of a node scatter the memory among them first, and then each scatters its own piece.
struct FlatPieces {
  std::vector<Axis> axes;      ///< outermost split first; axes of one rank included
  std::vector<int64_t> sizes;  ///< the elements of each piece; 0 for an empty one

  /// Returns whether the memory is cut at all.
  bool cut() const { return !axes.empty(); }
  /// Returns the number of elements of all pieces together.
  int64_t elements() const;
  /// Returns the index of a rank's piece in `sizes`.
  size_t position(const Mesh& mesh, int rank) const { return first_of(mesh, rank, axes.size()); }
  /// Returns the piece of a rank.
  ElementRun of(const Mesh& mesh, int rank) const { return of(mesh, rank, axes.size()); }
  /// Returns the run that is divided among the ranks with its coordinates on the first `outer`
  /// axes.
  ElementRun of(const Mesh& mesh, int rank, size_t outer) const;
  /// Returns the type of a piece on each of the axes.
  TypeOnAxis type() const;
  /// Returns the distribution of the pieces, given that of the whole memory.
  Distribution distribution(Distribution whole) const;

 private:
  /// Returns the index of the first of the pieces that the ranks with its coordinates on the first
  /// `outer` axes have.
  size_t first_of(const Mesh& mesh, int rank, size_t outer) const;
};

}  // namespace tessera
