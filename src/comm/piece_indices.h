#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"

namespace tessera {

// The elements of a dim that a rank has: the arithmetic of the types of comm/distribution.h.

/// Returns consecutive pieces of a dim of `extent` elements over `ranks` ranks: even ones if it
/// divides, otherwise as equal ones as can be, of whole packs of 8 elements but for the last. So
/// the rows of results of bf16 products begin at multiples of 16 bytes, which fast products need.
/// With less than 8 elements for each rank, a pack is one element. Throws Error if there are more
/// ranks than elements.
Pieces nearly_even(int64_t extent, int ranks);

/// Returns the global indices that a rank has of dim `dim` of `extent` elements in all, which the
/// axes of its order split one after the other, outermost first. Throws Error if the pieces do not
/// divide the dim, with the numbers.
std::vector<int64_t> piece_of_dim(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank);

/// Returns whether the ranks have different numbers of tokens: tokens in the expert view that were
/// uneven pieces before they crossed to it.
bool uneven_tokens(const TypeOnAxis& type);

/// Returns the extent of a dim that `ranks` ranks have together along an axis, where one of them
/// has `own` elements of it. If the sizes of the pieces are listed, it is their sum, even if `own`
/// is 0. Throws Error if `own` is not one of these sizes, and for uneven tokens, whose extent does
/// not follow from one axis alone.
int64_t joined_extent(const TypeOnAxis& type, int ranks, int64_t own);

/// Returns the extent that a dim has in the whole, where a rank has `own` elements of it. Tokens in
/// the expert view that all its axes split count as the parts of the whole that they were before
/// they crossed.
int64_t logical_extent(const Mesh& mesh, const Distribution& distribution, int dim, int64_t own);

/// Consecutive elements of a dim.
struct ElementRun {
  int64_t begin = 0;   ///< the index of the first one
  int64_t length = 0;  ///< in elements of the dim
  bool operator==(const ElementRun&) const = default;
};

/// Appends a run to others. It is joined with the last one if it follows that, and left out if it
/// is empty.
void append_run(std::vector<ElementRun>& runs, const ElementRun& run);

/// Returns the elements that both runs have; 0 long if there are none.
ElementRun common(const ElementRun& a, const ElementRun& b);

/// Returns the runs of `extent` elements that the rank at position `position` of `count` has, in
/// ascending order. Throws Error if they do not divide.
std::vector<ElementRun> piece_runs(int64_t extent, int position, int count, const Pieces& pieces);

/// Returns the indices of `extent` elements that the rank at position `position` of `count` has.
/// Throws Error if they do not divide.
std::vector<int64_t> piece(int64_t extent, int position, int count, const Pieces& pieces);

}  // namespace tessera
