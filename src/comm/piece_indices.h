#pragma once

#include <cstdint>
#include <vector>

#include "comm/distribution.h"

namespace tessera {

// Which elements of a dim a rank has: the arithmetic of the types of comm/distribution.h.

/// Consecutive pieces of a dim of `extent` elements over so many ranks: even ones if it divides,
/// otherwise as equal ones as can be, of whole packs of 8 elements but for the last. So the rows of
/// what bf16 products make begin on 16 bytes, as fast products want it. Throws Error if the ranks
/// are more than the elements. Where there are less than 8 elements for each rank, packs are of
/// one.
Pieces nearly_even(int64_t extent, int ranks);

/// The global indices that a rank has of a dim of `extent` elements in all, which `axes` split one
/// after the other, outermost first. Throws Error if the pieces do not divide the dim, with the
/// numbers.
std::vector<int64_t> piece_of_dim(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank);

/// Whether the ranks have different numbers of tokens: those of the expert view that were uneven
/// pieces before they crossed.
bool uneven_tokens(const TypeOnAxis& type);

/// The extent of a dim that `ranks` ranks have together along an axis, where one of them has `own`
/// elements of it: pieces of listed sizes say it by themselves, even if `own` is 0. Throws Error if
/// a rank has something else than one of these sizes, and for uneven tokens, of which one axis
/// alone does not say it.
int64_t joined_extent(const TypeOnAxis& type, int ranks, int64_t own);

/// The extent that a dim has in the whole, where a rank has `own` elements of it. Tokens of the
/// expert view, if all its axes split them, are the parts of a whole that they were before they
/// crossed.
int64_t logical_extent(const Mesh& mesh, const Distribution& distribution, int dim, int64_t own);

/// Consecutive elements of a dim.
struct ElementRun {
  int64_t place = 0;   ///< of the first one
  int64_t length = 0;  ///< in elements of the dim
  bool operator==(const ElementRun&) const = default;
};

/// The elements that both runs have; 0 long if there are none.
ElementRun common(const ElementRun& a, const ElementRun& b);

/// The runs, among `extent` elements, that position `position` of `count` has, in ascending order.
/// Throws Error if they do not divide.
std::vector<ElementRun> piece_runs(int64_t extent, int position, int count, const Pieces& pieces);

/// The indices, among `extent` elements, that position `position` of `count` has. Throws Error if
/// they do not divide.
std::vector<int64_t> piece(int64_t extent, int position, int count, const Pieces& pieces);

}  // namespace tessera
