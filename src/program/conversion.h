#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/worded.h"
#include "comm/distribution.h"
#include "program/derive.h"

namespace tessera {

/// What the ranks of an axis do in a conversion.
enum class Movement : uint8_t {
  nothing,         ///< each keeps its memory as it is
  all_gather,      ///< each gets the whole of which they have pieces
  reduce_scatter,  ///< each gets its piece of the sum
  all_reduce,      ///< each gets the sum
  own_piece,       ///< each keeps its piece of what it has
  zeros_around,    ///< each puts its piece into zeros
  one_keeps,       ///< the first keeps what it has, the others have zeros
  all_to_all,      ///< each gets its piece of another split
};
template <>
inline constexpr std::array<std::string_view, 8> kWords<Movement>{
    "nothing",   "all_gather",   "reduce_scatter", "all_reduce",
    "own_piece", "zeros_around", "one_keeps",      "all_to_all"};

/// A change of a value's type on one axis. It names both ends, because with the target alone a
/// program that is wrong may be a conversion that does nothing.
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
///   replicated -> partial     one rank keeps it     replicated -> partial
///   replicated -> invariant   nothing               invariant -> partial: one rank keeps it
///   invariant -> partial      one rank keeps it     replicated -> invariant: nothing
///   sharded -> sharded        all-to-all            sharded -> sharded: all-to-all
///   varying -> replicated     gather of rows        partial -> varying
///   partial -> varying        scatter of sums       varying -> replicated
///
/// Sharded to varying and back is an exchange of rows, an operation of its own.
struct Conversion {
  Axis axis;
  Placement from = Placement::invariant;
  /// The type on the axis afterwards. Its dim and pieces count if it is sharded or varying.
  TypeOnAxis to;
};

/// One line of the table above: the conversion, that of the gradient, and what the ranks do.
struct ConversionRule {
  Placement from;
  Placement to;
  Placement dual_from;
  Placement dual_to;
  Movement movement;
};

/// The table. What is added here is tested by tests/ops/collective on every axis.
std::span<const ConversionRule> conversion_rules();

/// What the ranks do in a conversion. Throws InternalError if there is no such conversion.
Movement movement(const Conversion& conversion);

/// The distribution after a conversion. Throws DistributionError, which names the value and the
/// axis, if the value is not of the type that the conversion begins with, if there is no such
/// conversion, or if the pieces that it joins are not the innermost of their dim.
Distribution converted(const Mesh& mesh, const TypedOperand& value, const Conversion& conversion);

/// The distribution of a value in the other view of the mesh. It passes where its type is the same
/// over all axes of its view: all split along dim 0, all invariant, all replicated or all partial.
/// Split tokens become each rank's own, and remember what they were; only these cross back as
/// split. Throws DistributionError otherwise.
Distribution crossed(const Mesh& mesh, const TypedOperand& value, MeshView view);

/// The conversion of the gradient. `before` is the type, on the axis, of what was converted.
Conversion dual(const Conversion& conversion, const TypeOnAxis& before);

}  // namespace tessera
