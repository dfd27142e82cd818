#include "state/unit_states.h"

#include "ops/collective/flat.h"

namespace tessera {

Builder update_builder(Program& program) {
  Builder builder(program);
  Node node;
  node.block = Block::optimizer;
  builder.follow(node, Phase::update);
  return builder;
}

Spec state_spec(const ParameterUnit& unit, const FlatPieces& pieces, const MeshRank& mesh_rank) {
  const DType wide = accumulation_dtype(unit.dtype);
  if (!pieces.cut()) return {{unit.elements}, wide, unit.distribution};
  return {{pieces.of(mesh_rank.mesh, mesh_rank.rank).length},
          wide,
          pieces.distribution(unit.distribution)};
}

UnitWeights declare_weights(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces) {
  const Program& program = builder.program();
  UnitWeights weights;
  weights.whole = builder.parameter(unit.name, {{unit.elements}, unit.dtype, unit.distribution});
  weights.own = pieces.cut() ? own_flat_piece(builder, weights.whole, pieces) : weights.whole;
  weights.master = rounds(unit)
                       ? builder.state(master_name(unit),
                                       state_spec(unit, pieces, {program.mesh(), program.rank()}))
                       : weights.own;
  return weights;
}

void give_pieces(Builder& builder, const UnitWeights& weights, const FlatPieces& pieces) {
  if (pieces.cut()) gather_pieces(builder, weights.own, weights.whole, pieces);
}

AdamWUnit unit_states(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces,
                      const UnitWeights& weights, Value gradient, OptimizerName optimizer) {
  const Program& program = builder.program();
  const Spec spec = state_spec(unit, pieces, {program.mesh(), program.rank()});
  AdamWUnit states{.gradient = gradient,
                   .first_moment = builder.state(first_moment_name(unit), spec),
                   .second_moment = {},
                   .master = weights.master,
                   .weight = {}};
  if (optimizer == OptimizerName::adamw) {
    states.second_moment = builder.state(second_moment_name(unit), spec);
  }
  if (rounds(unit)) states.weight = weights.own;
  return states;
}

}  // namespace tessera
