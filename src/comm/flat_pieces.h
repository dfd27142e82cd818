#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"
#include "comm/mesh.h"
#include "comm/piece_indices.h"

namespace tessera {

/// The consecutive pieces into which the flat memory of a unit (a set of parameters, one after the
/// other) is cut over the ranks of some axes. The rank's coordinates on the axes give the index of
/// its piece; the first axis counts slowest. If the data axis has levels, the memory is first
/// divided among the ranks of a node, and each part then among the nodes. So the level within a
/// node comes first in `axes`.
struct FlatPieces {
  std::vector<Axis> axes;      ///< outermost split first; axes of one rank included
  std::vector<int64_t> sizes;  ///< the elements of each piece; 0 for an empty one

  bool is_cut() const { return !axes.empty(); }
  bool operator==(const FlatPieces&) const = default;
  int64_t elements() const;  ///< of all pieces together
  /// Returns the index of a rank's piece in `sizes`.
  size_t piece_index(const Mesh& mesh, int rank) const {
    return first_index(mesh, rank, axes.size());
  }
  /// Returns the run of the memory that is a rank's piece.
  ElementRun run_of(const Mesh& mesh, int rank) const { return run_of(mesh, rank, axes.size()); }
  /// Returns the run of all ranks that have this rank's coordinates on the first `axis_count` axes.
  ElementRun run_of(const Mesh& mesh, int rank, size_t axis_count) const;
  /// Returns the pieces over the first `axis_count` axes: of each, what the ranks have together
  /// whose coordinates on these axes are equal. Not cut without axes.
  FlatPieces outer(const Mesh& mesh, size_t axis_count) const;
  /// Returns the pieces of run_of(mesh, rank, axis_count) over the other axes. Not cut if there are
  /// none.
  FlatPieces within(const Mesh& mesh, int rank, size_t axis_count) const;
  TypeOnAxis type() const;  ///< of the cut memory, on each of the axes
  /// Returns the distribution of the pieces, given that of the whole memory.
  Distribution distribution(Distribution whole) const;

 private:
  /// Returns the index of the first piece in run_of(mesh, rank, axis_count).
  size_t first_index(const Mesh& mesh, int rank, size_t axis_count) const;
  /// Returns the number of pieces in run_of(mesh, rank, axis_count).
  size_t piece_count(const Mesh& mesh, size_t axis_count) const;
};

}  // namespace tessera
