#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"

namespace tessera {

// Functions that compute which elements of a dim a rank has, from its type (comm/distribution.h).

/// Returns consecutive pieces of a dim of `extent` elements over `ranks` ranks. If the elements do
/// not divide evenly, the pieces are as equal as possible, but all except the last consist of packs
/// of 8 elements: rows of bf16 then begin at multiples of 16 bytes, which fast products need. With
/// fewer than 8 elements for each rank, a pack is one element. With fewer than one, throws Error.
Pieces nearly_even(int64_t extent, int ranks);

/// Returns the indices in a dim of the elements that a rank has. The whole dim has `extent`
/// elements. The axes in Distribution::order() split it one after the other. Throws Error, with the
/// numbers, if the pieces do not divide the dim.
std::vector<int64_t> piece_of_dim(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank);

/// Returns whether the dim has tokens in the expert view that were uneven pieces in the dense view.
/// The ranks then have different numbers of tokens.
bool has_uneven_tokens(const TypeOnAxis& type);

/// Returns the extent of a dim over all `ranks` ranks of an axis, if one rank has `own_extent`
/// elements. If the sizes of the pieces are listed, the extent is their sum times the repeats. Then
/// throws Error if `own_extent` is neither 0 nor a piece's. Throws Error for has_uneven_tokens().
int64_t joined_extent(const TypeOnAxis& type, int ranks, int64_t own_extent);

/// Returns the extent of a dim in the whole, if a rank has `own_extent` elements. Tokens that all
/// axes of the expert view split have the extent that they had in the dense view (Pieces::origin).
int64_t logical_extent(const Mesh& mesh, const Distribution& distribution, int dim,
                       int64_t own_extent);

/// Consecutive elements of a dim.
struct ElementRun {
  int64_t begin = 0;   ///< the index of the first one
  int64_t length = 0;  ///< in elements of the dim
  bool operator==(const ElementRun&) const = default;
};

/// Appends a run to a list, joined with the last run if they touch. Leaves out an empty run.
void append_run(std::vector<ElementRun>& runs, const ElementRun& run);

/// Returns the elements that are in both runs: an empty run if there are none.
ElementRun intersection(const ElementRun& a, const ElementRun& b);

/// Returns the runs, in ascending order, that the rank at `position` among `count` ranks has of
/// `extent` elements. Throws Error if the elements do not divide, and InternalError for tokens and
/// exchanges, which have no whole.
std::vector<ElementRun> piece_runs(int64_t extent, int position, int count, const Pieces& pieces);
/// Returns the indices of the elements of piece_runs().
std::vector<int64_t> piece_indices(int64_t extent, int position, int count, const Pieces& pieces);

}  // namespace tessera
