#pragma once

#include "comm/flat_pieces.h"
#include "model/parameter.h"
#include "ops/update/adamw.h"
#include "program/builder.h"
#include "state/optimizer_config.h"

namespace tessera {

/// A builder of a program of the update, whose nodes all have one block and one phase.
Builder update_builder(Program& program);

/// How the masters and moments of a unit lie on a rank: as its weights, or as their pieces.
Spec state_spec(const ParameterUnit& unit, const FlatPieces& pieces, const MeshRank& place);

/// A unit's weights in a program of the update.
struct UnitWeights {
  Value whole;
  /// What this rank updates: the whole, or its piece, a view of it. After that, give_pieces() has
  /// to follow.
  Value own;
  Value master;  ///< of `own`; the same value if the weights are not rounded
};

/// Declares the weights of a unit and their masters.
UnitWeights declare_weights(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces);

/// Gives all ranks the pieces of the weights that each has updated; nothing if they are not cut.
void give_pieces(Builder& builder, const UnitWeights& weights, const FlatPieces& pieces);

/// The states of a unit. `gradient` lies as they do. One that Muon updates has no second moment.
AdamWUnit unit_states(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces,
                      const UnitWeights& weights, Value gradient, OptimizerName optimizer);

}  // namespace tessera
