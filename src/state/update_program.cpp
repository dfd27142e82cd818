#include "state/update_program.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/collective/convert.h"
#include "ops/collective/flat.h"
#include "ops/collective/stages.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/kept_values.h"
#include "program/builder.h"
#include "state/gradient_squares.h"
#include "state/muon_program.h"
#include "state/unit_groups.h"

// UpdateWriter::write() appends the update of a step in this order: declare each unit's weights,
// main gradient and states, and sum the gradient over the ranks; sum the losses; compute the norm
// and clip; apply AdamW and Muon; gather the updated weights if ranks share out the states. A unit
// is a run of parameters in one flat memory. It is "cut" if several ranks have a piece of it each.

namespace tessera {
namespace {

/// Returns a builder for a program of the update. All nodes get one block and one phase.
Builder update_builder(Program& program) {
  Builder builder(program);
  Node node;
  node.block = Block::optimizer;
  builder.enter_block_of(node, Phase::update);
  return builder;
}

/// Returns the spec of a unit's masters and moments on a rank: of the whole unit or of its piece.
Spec state_spec(const ParameterUnit& unit, const FlatPieces& pieces, const MeshRank& mesh_rank) {
  const DType state_dtype = accumulation_dtype(unit.dtype);
  if (!pieces.is_cut()) return {{unit.elements}, state_dtype, unit.distribution};
  return {{pieces.run_of(mesh_rank.mesh, mesh_rank.rank).length},
          state_dtype,
          pieces.distribution(unit.distribution)};
}

/// A unit's weights in a program of the update.
struct UnitWeights {
  Value whole;
  /// The value that this rank updates: the whole, or a view of its piece. After the update of a
  /// piece, gather_weights() must follow.
  Value own;
  Value master;  ///< the master of `own`, and the same value if the weights are not rounded
};

/// Declares and returns the weights of a unit and their masters.
UnitWeights declare_weights(Builder& builder, const ParameterUnit& unit, const FlatPieces& pieces) {
  const Program& program = builder.program();
  UnitWeights weights;
  weights.whole = builder.parameter(unit.name, {{unit.elements}, unit.dtype, unit.distribution});
  weights.own = pieces.is_cut() ? own_flat_piece(builder, weights.whole, pieces) : weights.whole;
  weights.master = is_rounded(unit)
                       ? builder.state(master_name(unit),
                                       state_spec(unit, pieces, {program.mesh(), program.rank()}))
                       : weights.own;
  return weights;
}

/// Appends the all-gather of the weights, of which each rank has updated a piece. Appends nothing
/// if the unit is not cut.
void gather_weights(Builder& builder, const UnitWeights& weights, const FlatPieces& pieces) {
  if (pieces.is_cut()) gather_pieces(builder, weights.own, weights.whole, pieces);
}

/// Declares and returns the states of a unit, in the distribution of `gradient`. A unit that Muon
/// updates has no second moment.
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
  if (is_rounded(unit)) states.weight = weights.own;
  return states;
}

/// Declares and returns the main gradient of a unit whose weights the program has declared.
Value main_gradient(Builder& builder, Value weights, const ParameterUnit& unit) {
  return builder.declare_main_gradient(weights, unit.gradient_distribution);
}

Value declare_sum(Builder& builder, const StepSum& sum) {
  return builder.state(sum.name, {sum.shape, DType::f64, sum.distribution});
}

/// Returns the sum of a value over all ranks. A rank's value is an addend, or already the sum.
Value total(Builder& builder, Value value) {
  return take_sum(builder, value, axes_of_sum(builder, value, {Placement::invariant}));
}

class UpdateWriter {
 public:
  UpdateWriter(UpdateProgram& update, std::span<const ParameterUnit> units,
               std::span<const ParameterSpec> parameters, const OptimizerConfig& config,
               const ShardConfig& shard, const BalancedUnits& balance)
      : update_(update),
        builder_(update_builder(update.program)),
        units_(units),
        parameters_(parameters),
        shard_({update.program.mesh(), update.program.rank()}, units, parameters, update.sharing),
        config_(config),
        wire_(shard.gradients_wire),
        balance_(balance) {}

  void write(std::span<const StepSum> sums) {
    const Spec scalar{{1}, DType::f64, {}};
    update_.learning_rate = builder_.input("learning_rate", scalar);
    update_.clip_norm = builder_.input("clip_norm", scalar);
    update_.step = builder_.input("step", scalar);
    std::vector<Value> gradients;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      update_.updated_by.push_back(updated_by(config_, units_[unit]));
      weights_.emplace_back();
      gradients.emplace_back();
      states_.emplace_back();
      if (!updates(unit)) continue;
      weights_.back() = declare_weights(builder_, units_[unit], pieces(unit));
      const Value own = main_gradient(builder_, weights_.back().whole, units_[unit]);
      gradients.back() = total_gradient(own, pieces(unit));
      const bool on_several_stages = units_[unit].stages.size() > 1;
      if (on_several_stages) {
        sum_over_stages(builder_, fmt::format("gradient:{}", units_[unit].name),
                        std::span(&gradients.back(), 1), units_[unit].stages);
      }
      states_.back() = unit_states(builder_, units_[unit], pieces(unit), weights_.back(),
                                   gradients.back(), update_.updated_by.back());
    }
    const std::vector<Value> totals = totals_of(sums);
    std::vector<Value> losses;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].shape == Shape{1}) losses.push_back(cross(builder_, totals[i], MeshView::dense));
    }
    const Value squares = gradient_squares(builder_, gradients, units_, parameters_, shard_);
    const Clipped clipped = clip_gradients(builder_, squares, update_.clip_norm, losses);
    update_.gradient_norm = clipped.norm;
    builder_.name(update_.gradient_norm, "gradient_norm");
    builder_.output(update_.gradient_norm);
    update_.scale = clipped.scale;
    builder_.output(update_.scale);
    apply_adamw();
    apply_muon();
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (updates(unit)) gather_weights(builder_, weights_[unit], pieces(unit));
    }
    end_balance(builder_, units_, balance_, std::span(totals).last(balance_.units.size()),
                update_.scale);
  }

 private:
  const FlatPieces& pieces(size_t unit) const { return shard_.cut(unit); }
  /// Returns whether this rank updates a unit: its stage has it, and an optimizer changes it.
  bool updates(size_t unit) const { return is_updated(units_[unit], stage()); }
  int stage() const { return shard_.mesh().stage(shard_.rank()); }

  /// Takes the sums over all ranks and all stages, and returns them. They are outputs.
  std::vector<Value> totals_of(std::span<const StepSum> sums) {
    std::vector<Value> totals;
    for (const StepSum& sum : sums) totals.push_back(total(builder_, declare_sum(builder_, sum)));
    sum_over_stages(builder_, "step_sums", totals);
    for (size_t i = 0; i < sums.size(); ++i) {
      builder_.output(totals[i]);
      update_.totals.emplace(sums[i].name, totals[i]);
    }
    return totals;
  }

  /// Returns the sum of a gradient over all ranks: whole, or this rank's piece of a cut unit.
  Value total_gradient(Value gradient, const FlatPieces& pieces) {
    if (pieces.is_cut()) return take_piece_of_sum(builder_, gradient, pieces, wire_);
    return take_sum_by_level(
        builder_, gradient,
        axes_of_sum(builder_, gradient, {Placement::invariant, Placement::sharded}), wire_);
  }

  /// Returns the section of a parameter in this rank's states of its unit. `unit` is the index of
  /// that unit in the list to which the section refers.
  Section own_section(size_t parameter, int unit) const {
    const ElementRun held = shard_.held(parameter);
    const int64_t begin = shard_.offset_in_states(parameter) + held.begin;
    return {.unit = unit, .begin = begin, .end = begin + held.length};
  }

  void apply_adamw() {
    const auto view_and_optimizer = [&](size_t unit) {
      return std::pair(units_[unit].distribution.view(), update_.updated_by[unit]);
    };
    for (const UnitGroup& group : group_units(units_, stage(), view_and_optimizer)) {
      const auto [view, optimizer] = view_and_optimizer(group.units.front());
      if (optimizer != OptimizerName::adamw) continue;
      std::vector<AdamWUnit> states;
      for (const size_t unit : group.units) states.push_back(states_[unit]);
      std::vector<AdamWSection> sections;
      for (size_t i = 0; i < parameters_.size(); ++i) {
        const int index = group.indices[static_cast<size_t>(parameters_[i].unit_index)];
        if (index < 0) continue;
        const Section section = own_section(i, index);
        if (section.begin < section.end) {
          sections.push_back({section, decays(config_, parameters_[i])});
        }
      }
      adamw(builder_,
            {.scale = cross(builder_, update_.scale, view),
             .learning_rate = cross(builder_, update_.learning_rate, view),
             .step = cross(builder_, update_.step, view)},
            states, std::move(sections),
            {.beta1 = config_.beta1,
             .beta2 = config_.beta2,
             .epsilon = config_.epsilon,
             .weight_decay = config_.weight_decay});
    }
  }

  void apply_muon() {
    const std::vector<Value> parts = write_muon(builder_, {.config = config_,
                                                           .units = units_,
                                                           .parameters = parameters_,
                                                           .shard = shard_,
                                                           .states = states_,
                                                           .scale = update_.scale,
                                                           .learning_rate = update_.learning_rate});
    if (!std::ranges::count(update_.updated_by, OptimizerName::muon)) return;
    std::vector<Value> measures;
    for (const Value value : parts) {
      // The builder's own name would depend on the number of nodes so far, which differs between
      // ranks with different matrices. So each value gets a name that is the same on all ranks.
      builder_.name(value, fmt::format("muon_measures/{}", measures.size()));
      measures.push_back(cross(builder_, total(builder_, value), MeshView::dense));
    }
    if (measures.empty()) measures = {zeros(builder_, {{MuonMeasures::kSums}, DType::f64, {}})};
    update_.muon_measures =
        measures.size() == 1 ? measures[0] : add(builder_, measures, DType::f64);
    sum_over_stages(builder_, "muon_measures", std::span(&*update_.muon_measures, 1));
    builder_.name(*update_.muon_measures, "muon_measures");
    builder_.output(*update_.muon_measures);
  }

  UpdateProgram& update_;
  Builder builder_;
  std::span<const ParameterUnit> units_;
  std::span<const ParameterSpec> parameters_;
  StateShard shard_;
  const OptimizerConfig& config_;
  WireFormat wire_;
  const BalancedUnits& balance_;
  std::vector<UnitWeights> weights_;  // by unit; null if no optimizer changes it
  std::vector<AdamWUnit> states_;     // by unit; null likewise
};

}  // namespace

Program write_step_start(std::span<const ParameterUnit> units, std::span<const StepSum> sums,
                         const MeshRank& mesh_rank) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder = update_builder(program);
  std::vector<Value> values;
  const int stage = mesh_rank.mesh.stage(mesh_rank.rank);
  for (const ParameterUnit& unit : units) {
    if (!is_updated(unit, stage)) continue;
    const Value weights =
        builder.parameter(unit.name, {{unit.elements}, unit.dtype, unit.distribution});
    values.push_back(main_gradient(builder, weights, unit));
  }
  for (const StepSum& sum : sums) values.push_back(declare_sum(builder, sum));
  zero(builder, values);
  begin_balance(builder, units);
  return program;
}

UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                           const OptimizerConfig& config, const MeshRank& mesh_rank,
                           const ShardConfig& shard, const BalancedUnits& balance) {
  UpdateProgram update{.program = Program(mesh_rank.mesh, mesh_rank.rank),
                       .sharing = sharing_of(config, shard)};
  UpdateWriter(update, units, parameters, config, shard, balance).write(sums);
  return update;
}

Program write_rounding(std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const MeshRank& mesh_rank,
                       const StateSharing& sharing) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder = update_builder(program);
  const StateShard shard(mesh_rank, units, parameters, sharing);
  const auto view = [&](size_t unit) { return units[unit].distribution.view(); };
  for (const UnitGroup& group : group_units(units, mesh_rank.mesh.stage(mesh_rank.rank), view)) {
    std::vector<UnitWeights> declared;
    std::vector<Value> masters, weights;
    for (const size_t unit : group.units) {
      const FlatPieces& pieces = shard.cut(unit);
      if (!is_rounded(units[unit]) && !pieces.is_cut()) continue;
      declared.push_back(declare_weights(builder, units[unit], pieces));
      if (!is_rounded(units[unit])) continue;
      masters.push_back(declared.back().master);
      weights.push_back(declared.back().own);
    }
    if (!masters.empty()) round_to_weights(builder, masters, weights);
    size_t next = 0;
    for (const size_t unit : group.units) {
      const FlatPieces& pieces = shard.cut(unit);
      if (is_rounded(units[unit]) || pieces.is_cut())
        gather_weights(builder, declared[next++], pieces);
    }
  }
  return program;
}

StateSharing sharing_of(const OptimizerConfig& config, const ShardConfig& shard) {
  const ShardPlacement all{.level = "all"};
  if (!shard.weights.is_none() || !shard.gradients.is_none() ||
      !(shard.optimizer.is_none() || shard.optimizer == all)) {
    throw Error(
        "shard.weights is {}, shard.gradients {} and shard.optimizer {}: only \"none\" for the "
        "first "
        "two, and \"none\" or \"all\" for the optimizer, are built yet",
        shard.weights.text(), shard.gradients.text(), shard.optimizer.text());
  }
  return {.ranks = shard.optimizer == all ? ShardOver::all : ShardOver::none,
          .whole_matrices = config.name == OptimizerName::muon};
}

bool decays(const OptimizerConfig& config, const ParameterSpec& spec) {
  if (config.decay_rule == DecayRule::all) return true;
  if (spec.role == ParameterRole::norm || spec.role == ParameterRole::vector) return false;
  return config.decay_rule != DecayRule::no_embedding || spec.role != ParameterRole::embedding;
}

}  // namespace tessera
