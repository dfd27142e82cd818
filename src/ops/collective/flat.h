#pragma once

#include <optional>
#include <span>

#include "comm/flat_pieces.h"
#include "comm/wire_format.h"
#include "program/builder.h"

namespace tessera {

// Operations on flat memory, for ranks that share out the training state. A flat value is a set of
// parameters or their gradients, one after the other in one array. FlatPieces divides it into
// consecutive pieces, one for each rank. Where the data axis has levels (nodes, and the ranks of a
// node), sums and gathers go level by level, so that less is sent between nodes.
//
// A value may be a piece already, over the first `held` axes of the pieces. Then the operations are
// within it.

/// The feedback of rounding errors to a sum that travels as integers (ErrorFeedback).
struct SumFeedback {
  Value error;  ///< a state of f32, of the shape and the distribution of the addends
  double beta = 0.8;
};

/// Returns this rank's piece of the sum of a flat value over `axes`, on which it must be partial.
/// They are of one view, innermost first, with those of `pieces` after the first `held` among them.
/// The result is sharded on the axes of `pieces` and invariant on the others. On axes that are not
/// listed its type stays. f32 is sent in the format `wire`.
///
/// The sum is taken in the value's own memory, of which the result is a view. The order is that of
/// take_sum_by_level(). The whole sum is not gathered, which halves the bytes that are sent. So if
/// addends are rounded to travel, their sum is not rounded once more. Otherwise the piece has the
/// same bits as in the whole sum. There is no gradient. Throws DistributionError
/// if the value has another type.
Value take_piece_of_sum(Builder& builder, Value value, const FlatPieces& pieces, size_t held,
                        std::span<const Axis> axes, const Wire& wire,
                        const std::optional<SumFeedback>& feedback = {});

/// Returns this rank's piece of a flat value that all ranks have (invariant -> sharded), as a view.
/// After the piece is written, gather_pieces() must run before the whole value is read.
Value own_flat_piece(Builder& builder, Value whole, const FlatPieces& pieces, size_t held = 0);

/// Gathers the pieces of all ranks on each rank (sharded -> invariant), outer levels first. `piece`
/// is the result of own_flat_piece() for `whole`, which is changed. Throws DistributionError if
/// `piece` is not a piece of `whole`.
void gather_pieces(Builder& builder, Value piece, Value whole, const FlatPieces& pieces,
                   size_t held = 0);

}  // namespace tessera
