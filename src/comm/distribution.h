#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/worded.h"
#include "comm/mesh.h"

namespace tessera {

/// The way in which the ranks of one axis hold a value.
enum class Placement : uint8_t {
  invariant,   ///< the same value, with which all ranks compute the same: so its gradient is whole
  replicated,  ///< the same value, which each rank uses on its own data: its gradient is partial
  sharded,     ///< pieces of one logical tensor along a dim
  varying,     ///< own data along a dim, with no logical whole: the rows that an exchange brought
  partial,     ///< addends of a sum that has not been taken
};
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<Placement>{
    "invariant", "replicated", "sharded", "varying", "partial"};

/// The rule that says which elements of a dim each rank has.
enum class PieceKind : uint8_t {
  even,      ///< equal parts in the order of the ranks
  uneven,    ///< parts of the sizes that Pieces::sizes lists
  zigzag,    ///< rank i of n has chunks i and 2n-1-i of 2n: equal work in causal attention
  flat,      ///< consecutive parts of a unit's padded memory, equal or as Pieces::sizes lists
  tokens,    ///< of varying values: each rank's own tokens (see Pieces::origin)
  exchange,  ///< of varying values: the rows of the exchange Pieces::identity
};
template <>
inline constexpr std::array<std::string_view, 6> kWordsOf<PieceKind>{"even", "uneven", "zigzag",
                                                                     "flat", "tokens", "exchange"};

class Distribution;

/// The pieces into which a dim is split along one axis. Splits fit only if their pieces are equal.
struct Pieces {
  PieceKind kind = PieceKind::even;
  /// The sizes of uneven pieces, and of flat pieces that are not equal, by position on the axis.
  /// Axes that are neighbours in a dim's order and have the same flat pieces split it together.
  /// Then the list has a size for each rank over all these axes. The outermost counts slowest.
  std::vector<int64_t> sizes;
  int identity = -1;  ///< the number of an exchange; -1 for other pieces
  /// The distribution that tokens in the expert view had, and will have, in the dense view.
  std::shared_ptr<const Distribution> origin = {};
  bool operator==(const Pieces& other) const;
  /// Returns the pieces in words: "zigzag", "uneven 3 + 5", "exchange 4". With a mesh, names the
  /// origin of tokens too, so that pieces that are not equal have different texts.
  std::string text(const Mesh* mesh = nullptr) const;
};

/// Returns the text of pieces with the factor that is split and its repeats (see TypeOnAxis).
std::string pieces_text(std::string_view pieces, int factor, int64_t repeats);

/// The distribution of a value over one axis.
///
/// A dim may be a product of factors, as tokens are sequences × positions. `factor` is the index of
/// the factor that is split; 0 is the outermost. `repeats` is the product of the factors outside
/// it, on this rank: a split of the positions of 4 sequences has 4 repeats, one in each sequence.
struct TypeOnAxis {
  Placement placement = Placement::invariant;
  int dim = 0;  ///< the dim that is split; used if split(), like all that follows
  Pieces pieces;
  int factor = 0;
  int64_t repeats = 1;

  /// Returns whether the ranks hold different elements: sharded or varying.
  bool split() const { return placement == Placement::sharded || placement == Placement::varying; }
  /// Returns whether the ranks hold the same: invariant or replicated.
  bool same_on_ranks() const {
    return placement == Placement::invariant || placement == Placement::replicated;
  }
  bool operator==(const TypeOnAxis&) const = default;
  /// Returns the type in words: "sharded (dim 0, even)". With a mesh, names the origin of tokens
  /// too, so that types that are not equal have different texts.
  std::string text(const Mesh* mesh = nullptr) const;
};

TypeOnAxis invariant();
TypeOnAxis replicated();
TypeOnAxis partial();
TypeOnAxis sharded(int dim, Pieces pieces = {}, int factor = 0, int64_t repeats = 1);
TypeOnAxis varying(int dim, Pieces pieces, int factor = 0);

/// Returns the type of the gradient: replicated and partial change places, the others stay.
TypeOnAxis dual(const TypeOnAxis& type);

/// The distribution of a value over all axes of one view of the mesh: its type on each, and for
/// each dim the order in which axes split it, outermost first. A value is invariant on axes that
/// have been given no type.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(MeshView view) : view_(view) {}

  MeshView view() const { return view_; }
  const TypeOnAxis& on(Axis axis) const;
  /// Returns the axes that split a dim, outermost first.
  std::span<const Axis> order(int dim) const;
  /// Returns the axes that split a dim, innermost first: the order in which pieces are joined.
  std::vector<Axis> joining_order(int dim) const;
  /// Returns whether the value is invariant on every axis.
  bool invariant() const { return types_.empty(); }

  /// Returns a copy with this type on one axis. A new split is the innermost of its dim. A split
  /// that stays on its dim keeps its index in the order.
  Distribution with(Axis axis, const TypeOnAxis& type) const;
  Distribution in_view(MeshView view) const;
  /// Returns the distribution of the gradient.
  Distribution dual() const;

  /// Returns the types in words: "tensor: sharded (dim 0, even), data: partial", or "invariant".
  /// Names the order of a dim's splits only if it is unusual. The usual order has outer factors
  /// first, and within a factor the outer axes of the mesh.
  std::string text(const Mesh& mesh) const;

  /// Returns whether ranks that differ on other axes than these hold the same value.
  bool has_copies_beyond(const Mesh& mesh, std::span<const Axis> axes) const;

  bool operator==(const Distribution&) const = default;

 private:
  MeshView view_ = MeshView::dense;
  std::vector<TypeOnAxis> types_;          // by axis; the last one is not invariant
  std::vector<std::vector<Axis>> orders_;  // by dim; the last one is not empty
};

}  // namespace tessera
