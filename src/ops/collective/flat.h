#pragma once

#include "comm/flat_pieces.h"
#include "comm/wire_format.h"
#include "program/builder.h"

namespace tessera {

// Operations on the flat memory of a unit, for ranks that share the optimizer's states (ZeRO-1).

/// Returns this rank's piece of the sum of a partial flat value over all axes on which it is
/// partial (partial -> sharded on the axes of `pieces`, and partial -> invariant on the others).
/// `pieces` are cut over axes on which the value is partial. The sum is taken in the value's own
/// memory, of which the result is a view. It is taken level by level and in the order of
/// take_sum_by_level(): the piece has the bits that it has in the whole sum. It is not gathered
/// afterwards, which halves the bytes that are sent. There is no gradient. Throws DistributionError
/// if the value is of another type.
Value take_piece_of_sum(Builder& builder, Value value, const FlatPieces& pieces, WireFormat wire);

/// Returns a rank's piece of a flat value that all ranks have (invariant -> sharded), in the
/// value's memory. What is written there must be sent to the others before the value is read: see
/// gather_pieces().
Value own_flat_piece(Builder& builder, Value whole, const FlatPieces& pieces);

/// Gathers the pieces of all ranks on each rank (sharded -> invariant). `piece` is the result of
/// own_flat_piece() for `whole`, a kept value, which is changed. Where the data axis has levels,
/// pieces are gathered over the outer ones first. Throws DistributionError if `piece` is no piece
/// of `whole`.
void gather_pieces(Builder& builder, Value piece, Value whole, const FlatPieces& pieces);

}  // namespace tessera
