#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/worded.h"
#include "comm/distribution.h"
#include "program/derive.h"

namespace tessera {

/// The data movement of a conversion: what each rank of the axis does.
enum class Movement : uint8_t {
  nothing,         ///< keeps its memory as it is
  all_gather,      ///< gets the pieces of all ranks
  reduce_scatter,  ///< gets its piece of the sum
  all_reduce,      ///< gets the sum
  own_piece,       ///< keeps its own piece of the whole
  zeros_around,    ///< puts its piece into a whole of zeros
  one_keeps,       ///< the first rank keeps its value, the others get zeros
  all_to_all,      ///< gets its piece of a split along another dim
};
template <>
inline constexpr std::array<std::string_view, 8> kWordsOf<Movement>{
    "nothing",   "all_gather",   "reduce_scatter", "all_reduce",
    "own_piece", "zeros_around", "one_keeps",      "all_to_all"};

/// A change of a value's type on one axis. It also names the type before the change: otherwise a
/// mistake in the program could turn into a conversion that does nothing.
///
///   from -> to                forward               backward
///   invariant -> replicated   nothing               partial -> invariant: all-reduce
///   partial -> invariant      all-reduce            invariant -> replicated: nothing
///   partial -> replicated     all-reduce            partial -> replicated: all-reduce
///   sharded -> replicated     all-gather            partial -> sharded: reduce-scatter
///   sharded -> invariant      all-gather            invariant -> sharded: keep own piece
///   invariant -> sharded      keep own piece        sharded -> invariant: all-gather
///   partial -> sharded        reduce-scatter        sharded -> replicated: all-gather
///   replicated -> sharded     keep own piece        sharded -> partial: own piece in zeros
///   sharded -> partial        own piece in zeros    replicated -> sharded: keep own piece
///   replicated -> partial     one rank keeps it     replicated -> partial: one rank keeps it
///   replicated -> invariant   nothing               invariant -> partial: one rank keeps it
///   invariant -> partial      one rank keeps it     replicated -> invariant: nothing
///   sharded -> sharded        all-to-all            sharded -> sharded: all-to-all
///   varying -> replicated     gather of rows        partial -> varying: scatter of sums
///   partial -> varying        scatter of sums       varying -> replicated: gather of rows
///
/// A change between sharded and varying is an exchange of rows, an operation of its own.
struct Conversion {
  Axis axis;
  Placement from = Placement::invariant;
  /// The type on the axis afterwards. Its dim and pieces count only if it is sharded or varying.
  TypeOnAxis to;
};

/// One row of the table above: a conversion, the conversion of its gradient (`dual_from` to
/// `dual_to`), and the data movement of the forward one.
struct ConversionRule {
  Placement from;
  Placement to;
  Placement dual_from;
  Placement dual_to;
  Movement movement;
};

/// Returns the table. tests/ops/collective tests every row on every axis.
std::span<const ConversionRule> conversion_rules();

/// Returns the data movement of a conversion. Throws InternalError if there is no such conversion.
Movement movement(const Conversion& conversion);

/// Returns the distribution after a conversion. Throws DistributionError, which names the value and
/// the axis, if the value does not have the type `from`, if the table has no such conversion, or if
/// another axis splits the pieces into which this axis splits a dim.
Distribution converted(const Mesh& mesh, const TypedOperand& value, const Conversion& conversion);

/// Returns the distribution of a value in `view` of the mesh. A value can cross to the other view
/// if all axes of its own view split dim 0, or if its type is invariant, replicated or partial on
/// all of them. In the expert view, tokens that were split have pieces of the kind `tokens`, which
/// store the distribution in the dense view. Only such pieces cross back. A value that has the view
/// already keeps its distribution. Throws DistributionError if the value cannot cross.
Distribution crossed(const Mesh& mesh, const TypedOperand& value, MeshView view);

/// Returns the conversion of the gradient. `before` is the type before `conversion`.
Conversion dual(const Conversion& conversion, const TypeOnAxis& before);

}  // namespace tessera
