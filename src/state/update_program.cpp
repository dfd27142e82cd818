#include "state/update_program.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/collective/convert.h"
#include "ops/collective/flat.h"
#include "ops/collective/move_pieces.h"
#include "ops/collective/stages.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/kept_values.h"
#include "ops/update/muon_measures.h"
#include "program/builder.h"
#include "state/gradient_squares.h"
#include "state/muon_program.h"
#include "state/unit_groups.h"

// UpdateWriter::write() appends the update of a step in this order: declare each unit's weights,
// main gradient and states, and sum the gradient over the ranks; sum the losses; compute the norm
// and clip; apply AdamW and Muon; gather the updated weights if ranks share out the states. A unit
// is a run of parameters in one flat memory. It is "cut" if several ranks have a piece of it each.
//
// Ranks may store pieces of the weights, and pieces of these of the main gradient. A rank updates
// the piece of the piece for which it has the states. So a sum begins with the stored piece of the
// gradient, over the axes on which it is still partial, and a gather ends with the stored piece of
// the weights.

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

/// The declarations of the values that programs of the update share with all others.
class UnitValues {
 public:
  UnitValues(Builder& builder, std::span<const ParameterUnit> units, const StateShard& shard)
      : builder_(builder), units_(units), shard_(shard) {}

  /// A unit's weights in a program of the update.
  struct Weights {
    Value stored;  ///< what programs read: the whole, or this rank's piece
    /// The value that this rank updates: all that is stored, or a view of its piece. After the
    /// update of a piece, gather() must follow.
    Value own;
    Value master;  ///< the master, which is `own` if the weights are the masters themselves
  };

  /// Declares and returns the weights of a unit and their masters.
  Weights weights(size_t unit) {
    const ParameterUnit& of = units_[unit];
    Weights result;
    result.stored =
        builder_.parameter(of.name, {{shard_.run_of_unit(unit, Kept::weight).length},
                                     of.dtype,
                                     shard_.stored(unit).weights.distribution(of.distribution)});
    const size_t held = shard_.stored(unit).weights.axes.size();
    result.own = pieces(unit).axes.size() > held
                     ? own_flat_piece(builder_, result.stored, pieces(unit), held)
                     : result.stored;
    result.master =
        shard_.has_masters(unit) ? builder_.state(master_name(of), state_spec(unit)) : result.own;
    return result;
  }

  /// Returns the masters of a unit, rounded to its dtype.
  Value rounded_masters(size_t unit, const Weights& weights) {
    return cast(builder_, weights.master, units_[unit].dtype);
  }

  /// Appends what gives each rank all weights that it stores, of which it has updated a piece. If
  /// the states are rearranged, the piece is `rearranged`, which is sent to the ranks that have
  /// these elements of the weights. Then all stored weights are gathered. Appends nothing if each
  /// rank has updated all that it stores.
  void gather(size_t unit, const Weights& weights, Value rearranged) {
    if (shard_.is_rearranged(unit)) {
      move_pieces_into(builder_, "weights:" + units_[unit].name, rearranged, shard_.cut(unit),
                       weights.own, shard_.even_cut(unit));
    }
    const size_t held = shard_.stored(unit).weights.axes.size();
    if (pieces(unit).axes.size() == held) return;
    gather_pieces(builder_, weights.own, weights.stored, pieces(unit), held);
  }

  /// Declares and returns the main gradient of a unit whose weights the program has declared.
  Value main_gradient(size_t unit, Value stored_weights) {
    return builder_.declare_main_gradient(
        stored_weights, {shard_.run_of_unit(unit, Kept::gradient).length},
        shard_.stored(unit).gradients.distribution(units_[unit].gradient_distribution));
  }

  /// Returns this rank's piece of the gradient as the states are cut, given the piece of the sum.
  Value gradient_of_states(size_t unit, Value sum) {
    if (!shard_.is_rearranged(unit)) return sum;
    const std::string name = "rearranged_gradient:" + units_[unit].name;
    const Value moved = move_pieces(builder_, name, sum, shard_.even_cut(unit), shard_.cut(unit));
    builder_.name_as(moved, name);
    return moved;
  }

  /// Returns the pieces of a unit that ranks sum and gather. Those of its states are the same or,
  /// if they are rearranged, others.
  const FlatPieces& pieces(size_t unit) const {
    return shard_.is_rearranged(unit) ? shard_.even_cut(unit) : shard_.cut(unit);
  }

  /// Returns the spec of a unit's masters and moments on this rank: of the whole or of its piece.
  Spec state_spec(size_t unit) const {
    return {{shard_.run_of_unit(unit, Kept::master).length},
            accumulation_dtype(units_[unit].dtype),
            shard_.cut(unit).distribution(units_[unit].distribution)};
  }

 private:
  Builder& builder_;
  std::span<const ParameterUnit> units_;
  const StateShard& shard_;
};

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
               const ShardPlan& shard, const BalancedUnits& balance)
      : update_(update),
        builder_(update_builder(update.program)),
        units_(units),
        parameters_(parameters),
        shard_({update.program.mesh(), update.program.rank()}, units, parameters, update.sharing),
        values_(builder_, units, shard_),
        config_(config),
        plan_(shard),
        matrices_(dtype_of_matrices(units)),
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
      weights_.back() = values_.weights(unit);
      gradients.back() = total_gradient(unit);
      const bool on_several_stages = units_[unit].stages.size() > 1;
      if (on_several_stages) {
        sum_over_stages(builder_, fmt::format("gradient:{}", units_[unit].name),
                        std::span(&gradients.back(), 1), units_[unit].stages);
      }
      states_.back() = unit_states(unit);
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
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!updates(unit)) continue;
      states_[unit].gradient = values_.gradient_of_states(unit, gradients[unit]);
    }
    apply_adamw();
    apply_muon();
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!updates(unit)) continue;
      values_.gather(unit, weights_[unit], states_[unit].weight.value_or(states_[unit].master));
    }
    if (shard_.has_second_copies()) advance_version(builder_, weights_version(builder_));
    end_balance(builder_, units_, balance_, std::span(totals).last(balance_.units.size()),
                update_.scale);
  }

 private:
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

  /// Returns the sum of a unit's gradient over all ranks: whole, or this rank's piece of it.
  Value total_gradient(size_t unit) {
    const Value gradient = values_.main_gradient(unit, weights_[unit].stored);
    const std::vector<Axis> axes =
        axes_of_sum(builder_, gradient, {Placement::invariant, Placement::sharded});
    const FlatPieces& pieces = values_.pieces(unit);
    const size_t held = shard_.stored(unit).gradients.axes.size();
    const Wire wire =
        plan_.update_wire(units_[unit].dtype == matrices_, shard_.stored(unit).gradients.is_cut());
    if (pieces.axes.size() > held) {
      return take_piece_of_sum(builder_, gradient, pieces, held, axes, wire);
    }
    return take_sum_by_level(builder_, gradient, axes, wire);
  }

  /// Declares and returns the states of a unit, without its gradient. A unit that Muon updates has
  /// no second moment. If the states are rearranged, a copy of its weights is updated, as these are
  /// cut.
  AdamWUnit unit_states(size_t unit) {
    const ParameterUnit& of = units_[unit];
    const Spec spec = values_.state_spec(unit);
    AdamWUnit states{.gradient = {},
                     .first_moment = builder_.state(first_moment_name(of), spec),
                     .second_moment = {},
                     .master = weights_[unit].master,
                     .weight = {}};
    if (update_.updated_by[unit] == OptimizerName::adamw) {
      states.second_moment = builder_.state(second_moment_name(of), spec);
    }
    if (!is_rounded(of)) return states;
    states.weight = shard_.is_rearranged(unit) ? values_.rounded_masters(unit, weights_[unit])
                                               : weights_[unit].own;
    return states;
  }

  /// Returns the section of a parameter in this rank's states of its unit. `unit` is the index of
  /// that unit in the list to which the section refers.
  Section own_section(size_t parameter, int unit) const {
    const ElementRun held = shard_.held(parameter);
    const int64_t begin = shard_.offset_in(parameter, Kept::master) + held.begin;
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
  UnitValues values_;
  const OptimizerConfig& config_;
  const ShardPlan& plan_;
  DType matrices_;  // the dtype of units that may be quantised
  const BalancedUnits& balance_;
  std::vector<UnitValues::Weights> weights_;  // by unit; null if no optimizer changes it
  std::vector<AdamWUnit> states_;             // by unit; null likewise
};

}  // namespace

Program write_step_start(std::span<const ParameterUnit> units,
                         std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                         const MeshRank& mesh_rank, const StateSharing& sharing) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder = update_builder(program);
  const StateShard shard(mesh_rank, units, parameters, sharing);
  UnitValues unit_values(builder, units, shard);
  std::vector<Value> values;
  const int stage = mesh_rank.mesh.stage(mesh_rank.rank);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!is_updated(units[unit], stage)) continue;
    values.push_back(unit_values.main_gradient(unit, unit_values.weights(unit).stored));
  }
  for (const StepSum& sum : sums) values.push_back(declare_sum(builder, sum));
  zero(builder, values);
  begin_balance(builder, units);
  return program;
}

UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                           const OptimizerConfig& config, const MeshRank& mesh_rank,
                           const ShardPlan& shard, const BalancedUnits& balance) {
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
  UnitValues values(builder, units, shard);
  for (const UnitGroup& group : group_units(units, mesh_rank.mesh.stage(mesh_rank.rank), view)) {
    std::vector<UnitValues::Weights> declared;
    std::vector<Value> masters, weights;
    for (const size_t unit : group.units) {
      declared.push_back(values.weights(unit));
      if (!is_rounded(units[unit]) || shard.is_rearranged(unit)) continue;
      masters.push_back(declared.back().master);
      weights.push_back(declared.back().own);
    }
    if (!masters.empty()) round_to_weights(builder, masters, weights);
    for (size_t i = 0; i < group.units.size(); ++i) {
      const size_t unit = group.units[i];
      const Value rearranged =
          shard.is_rearranged(unit) ? values.rounded_masters(unit, declared[i]) : Value{};
      values.gather(unit, declared[i], rearranged);
    }
  }
  if (shard.has_second_copies()) advance_version(builder, weights_version(builder));
  return program;
}

StateSharing sharing_of(const OptimizerConfig& config, const ShardPlan& shard) {
  return {.axes = shard.axes, .whole_matrices = config.name == OptimizerName::muon};
}

bool decays(const OptimizerConfig& config, const ParameterSpec& spec) {
  if (config.decay_rule == DecayRule::all) return true;
  if (spec.role == ParameterRole::norm || spec.role == ParameterRole::vector) return false;
  return config.decay_rule != DecayRule::no_embedding || spec.role != ParameterRole::embedding;
}

}  // namespace tessera
