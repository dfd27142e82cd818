#pragma once

#include "comm/flat_pieces.h"
#include "comm/wire_format.h"
#include "program/builder.h"

namespace tessera {

// What the ranks that share the optimizer's states do with the flat memory of a unit (ZeRO-1).

/// Takes the sum of a partial flat value over all axes on which it is partial, of which each rank
/// keeps its piece (partial -> sharded, and partial -> invariant on other axes). `pieces` are cut
/// over axes on which the value is partial. The sum is taken in the value's own memory, of which
/// the result is a view, as take_sum_by_level() does it, level by level and in the same order: the
/// piece has the bits that it has in the whole sum. It is not gathered afterwards, which halves
/// what is sent. There is no gradient. Throws DistributionError if the value is of another type.
Value take_piece_of_sum(Builder& builder, Value value, const FlatPieces& pieces, WireFormat wire);

/// A rank's piece of a flat value that all have (invariant -> sharded), in its memory. What is
/// written there must be given to the others before the value is read: see gather_pieces().
Value own_flat_piece(Builder& builder, Value whole, const FlatPieces& pieces);

/// Gives each rank the pieces of all (sharded -> invariant). `piece` is what own_flat_piece() made
/// of `whole`, a kept value, which is changed. Where the data axis has levels, pieces are gathered
/// over the outer ones first. Throws DistributionError if `piece` is no piece of `whole`.
void gather_pieces(Builder& builder, Value piece, Value whole, const FlatPieces& pieces);

}  // namespace tessera
