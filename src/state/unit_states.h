#pragma once

#include "comm/flat_pieces.h"
#include "model/parameter.h"
#include "ops/update/adamw.h"
#include "program/builder.h"
#include "state/optimizer_config.h"

namespace tessera {

/// Returns a builder for a program of the update. All nodes get one block and one phase.
Builder update_builder(Program& program);

/// Returns the spec of the masters and moments of a unit on a rank: all of the unit, or a piece.
Spec state_spec(const ParameterUnit& unit, const FlatPieces& pieces, const MeshRank& mesh_rank);

/// A unit's weights in a program of the update.
struct UnitWeights {
  Value whole;
  /// The part that this rank updates: the whole, or a view of its piece. give_pieces() must follow
  /// the update.
  Value own;
  Value master;  ///< the master of `own`, and the same value if the weights are not rounded
};

/// Declares and returns the weights of a unit and their masters.
UnitWeights declare_weights(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces);

/// Appends the all-gather of the pieces of the weights that the ranks have updated. Appends nothing
/// if the weights are not cut.
void give_pieces(Builder& builder, const UnitWeights& weights, const FlatPieces& pieces);

/// Declares and returns the states of a unit. `gradient` has their distribution. A unit that Muon
/// updates has no second moment.
AdamWUnit unit_states(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces,
                      const UnitWeights& weights, Value gradient, OptimizerName optimizer);

}  // namespace tessera
