#include "state/update_program.h"

#include <algorithm>
#include <utility>

#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/round.h"
#include "ops/update/sum_of_squares.h"
#include "ops/update/zero.h"
#include "program/builder.h"
#include "state/muon_program.h"

namespace tessera {
namespace {

/// The unit's values in the program that is being written.
struct UnitValues {
  UnitValues(Builder& builder, const ParameterUnit& unit)
      : weight(builder.parameter(unit.name, {{unit.elements}, unit.dtype, unit.distribution})),
        gradient(builder.main_gradient(weight, unit.gradient_distribution)) {}
  Value weight;
  Value gradient;
};

/// A builder of an update program, whose nodes all have one block and one phase.
Builder update_builder(Program& program) {
  Builder builder(program);
  Node place;
  place.block = Block::optimizer;
  builder.follow(place, Phase::update);
  return builder;
}

Value declare(Builder& builder, const StepSum& sum) {
  return builder.state(sum.name, {sum.shape, DType::f64, sum.distribution});
}

Spec wide_spec(const ParameterUnit& unit) {
  return {{unit.elements}, accumulation_dtype(unit.dtype), unit.distribution};
}

/// The values of a unit. One that Muon updates has no second moment.
AdamWUnit unit_states(Builder& builder, const ParameterUnit& unit, const UnitValues& values,
                      OptimizerName optimizer) {
  AdamWUnit result{.gradient = values.gradient,
                   .first_moment = builder.state(first_moment_name(unit), wide_spec(unit)),
                   .second_moment = {},
                   .master = values.weight,
                   .weight = {}};
  if (optimizer == OptimizerName::adamw) {
    result.second_moment = builder.state(second_moment_name(unit), wide_spec(unit));
  }
  if (rounds(unit)) {
    result.master = builder.state(master_name(unit), wide_spec(unit));
    result.weight = values.weight;
  }
  return result;
}

/// The axes of a value's view on which it is of this placement.
std::vector<Axis> axes_with(const Builder& builder, Value value, Placement placement) {
  const Distribution& lies = builder.spec(value).distribution;
  std::vector<Axis> axes;
  for (const Axis axis : builder.program().mesh().of_view(lies.view())) {
    if (lies.on(axis).placement == placement) axes.push_back(axis);
  }
  return axes;
}

/// The sum over all ranks of a value of which each has an addend, or the whole.
Value total(Builder& builder, Value value) {
  return take_sum(builder, value, axes_of_sum(builder, value, {Placement::invariant}));
}

/// The same of a gradient, of which ranks may have pieces as well.
Value total_gradient(Builder& builder, Value gradient, WireFormat wire) {
  return take_sum_by_level(
      builder, gradient, axes_of_sum(builder, gradient, {Placement::invariant, Placement::sharded}),
      wire);
}

/// A value of which one rank has all, where an axis has only one.
Value whole_on_single_ranks(Builder& builder, Value value) {
  const Mesh& mesh = builder.program().mesh();
  for (const Axis axis : builder.spec(value).distribution.joining_order(0)) {
    if (mesh.size(axis) > 1) break;
    value = convert(builder, value, axis, Placement::sharded, invariant());
  }
  return value;
}

Section section_of(const ParameterSpec& parameter, int unit) {
  return {.unit = unit,
          .begin = parameter.unit_offset,
          .end = parameter.unit_offset + parameter.piece_shape.elements()};
}

/// Units that an operation takes together, because they lie alike.
struct UnitGroup {
  std::vector<size_t> units;  // indices
  std::vector<int> places;    // by unit: its place in `units`, or -1
};

/// The units that an optimizer changes, by a property of theirs, in the order in which the
/// properties appear.
template <typename Property>
std::vector<UnitGroup> group_units(std::span<const ParameterUnit> units, Property&& property) {
  const size_t count = units.size();
  std::vector<decltype(property(size_t{}))> known;
  std::vector<UnitGroup> groups;
  for (size_t i = 0; i < count; ++i) {
    if (!units[i].has_gradients()) continue;
    const auto own = property(i);
    const auto found = std::ranges::find(known, own);
    const auto place = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(own);
      groups.push_back({.units = {}, .places = std::vector<int>(count, -1)});
    }
    UnitGroup& group = groups[place];
    group.places[i] = static_cast<int>(group.units.size());
    group.units.push_back(i);
  }
  return groups;
}

class UpdateWriter {
 public:
  UpdateWriter(UpdateProgram& update, std::span<const ParameterUnit> units,
               std::span<const ParameterSpec> parameters, const OptimizerConfig& config,
               WireFormat wire, const BalanceOfStep& balance)
      : update_(update),
        builder_(update_builder(update.program)),
        units_(units),
        parameters_(parameters),
        config_(config),
        wire_(wire),
        balance_(balance) {}

  void write(std::span<const StepSum> sums) {
    const Spec scalar{{1}, DType::f64, {}};
    update_.learning_rate = builder_.input("learning_rate", scalar);
    update_.clip_norm = builder_.input("clip_norm", scalar);
    update_.step = builder_.input("step", scalar);
    for (const ParameterUnit& unit : units_) {
      update_.updated_by.push_back(updated_by(config_, unit));
      states_.emplace_back();
      if (!unit.has_gradients()) continue;
      states_.back() =
          unit_states(builder_, unit, UnitValues(builder_, unit), update_.updated_by.back());
      states_.back().gradient = total_gradient(builder_, states_.back().gradient, wire_);
    }
    std::vector<Value> losses;
    for (const StepSum& sum : sums) {
      update_.totals.push_back(total(builder_, declare(builder_, sum)));
      builder_.output(update_.totals.back());
      if (sum.shape == Shape{1}) {
        losses.push_back(cross(builder_, update_.totals.back(), MeshView::dense));
      }
    }
    const Clipped clipped = clip_gradients(builder_, squares(), update_.clip_norm, losses);
    update_.gradient_norm = clipped.norm;
    builder_.name(update_.gradient_norm, "gradient_norm");
    builder_.output(update_.gradient_norm);
    update_.scale = clipped.scale;
    builder_.output(update_.scale);
    apply_adamw();
    apply_muon();
    end_balance(builder_, units_, balance_, std::span(update_.totals).last(balance_.units.size()),
                update_.scale);
  }

 private:
  /// The sum of the squares of all gradients, each counted once.
  Value squares() {
    std::vector<Value> gradients;
    for (const AdamWUnit& unit : states_) {
      gradients.push_back(
          unit.gradient ? cross_if_whole(whole_on_single_ranks(builder_, unit.gradient)) : Value{});
    }
    const auto lies = [&](size_t unit) { return builder_.spec(gradients[unit]).distribution; };
    std::vector<Value> addends;
    for (const UnitGroup& group : group_units(units_, lies)) {
      std::vector<Value> values;
      for (const size_t unit : group.units) values.push_back(gradients[unit]);
      std::vector<Section> sections;
      for (const ParameterSpec& parameter : parameters_) {
        const int place = group.places[static_cast<size_t>(parameter.unit_index)];
        if (place >= 0) sections.push_back(section_of(parameter, place));
      }
      const Value own = sum_of_squares(builder_, values, std::move(sections));
      addends.push_back(cross(builder_, total(builder_, own), MeshView::dense));
    }
    return addends.size() == 1 ? addends[0] : add(builder_, addends, DType::f64);
  }

  /// What is the same on all ranks passes to the dense view; what is not is added up in its own.
  Value cross_if_whole(Value value) {
    if (!axes_with(builder_, value, Placement::sharded).empty()) return value;
    return cross(builder_, value, MeshView::dense);
  }

  void apply_adamw() {
    const auto way = [&](size_t unit) {
      return std::pair(units_[unit].distribution.view(), update_.updated_by[unit]);
    };
    for (const UnitGroup& group : group_units(units_, way)) {
      const auto [of_group, optimizer] = way(group.units.front());
      if (optimizer != OptimizerName::adamw) continue;
      std::vector<AdamWUnit> states;
      for (const size_t unit : group.units) states.push_back(states_[unit]);
      std::vector<AdamWSection> sections;
      for (const ParameterSpec& parameter : parameters_) {
        const int place = group.places[static_cast<size_t>(parameter.unit_index)];
        if (place >= 0)
          sections.push_back({section_of(parameter, place), decays(config_, parameter)});
      }
      adamw(builder_,
            {.scale = cross(builder_, update_.scale, of_group),
             .learning_rate = cross(builder_, update_.learning_rate, of_group),
             .step = cross(builder_, update_.step, of_group)},
            states, std::move(sections),
            {.beta1 = config_.beta1,
             .beta2 = config_.beta2,
             .epsilon = config_.epsilon,
             .weight_decay = config_.weight_decay});
    }
  }

  void apply_muon() {
    const std::vector<Value> own = write_muon(builder_, {.config = config_,
                                                         .units = units_,
                                                         .parameters = parameters_,
                                                         .states = states_,
                                                         .scale = update_.scale,
                                                         .learning_rate = update_.learning_rate});
    if (own.empty()) return;
    std::vector<Value> measures;
    for (const Value value : own) {
      measures.push_back(cross(builder_, total(builder_, value), MeshView::dense));
    }
    update_.muon_measures =
        measures.size() == 1 ? measures[0] : add(builder_, measures, DType::f64);
    builder_.name(*update_.muon_measures, "muon_measures");
    builder_.output(*update_.muon_measures);
  }

  UpdateProgram& update_;
  Builder builder_;
  std::span<const ParameterUnit> units_;
  std::span<const ParameterSpec> parameters_;
  const OptimizerConfig& config_;
  WireFormat wire_;
  const BalanceOfStep& balance_;
  std::vector<AdamWUnit> states_;  // by unit; the gradients are whole. Null if none changes it
};

}  // namespace

Program write_step_start(std::span<const ParameterUnit> units, std::span<const StepSum> sums,
                         const MeshRank& place) {
  Program program(place.mesh, place.rank);
  Builder builder = update_builder(program);
  std::vector<Value> values;
  for (const ParameterUnit& unit : units) {
    if (unit.has_gradients()) values.push_back(UnitValues(builder, unit).gradient);
  }
  for (const StepSum& sum : sums) values.push_back(declare(builder, sum));
  zero(builder, values);
  begin_balance(builder, units);
  return program;
}

UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                           const OptimizerConfig& config, const MeshRank& place, WireFormat wire,
                           const BalanceOfStep& balance) {
  UpdateProgram update{.program = Program(place.mesh, place.rank)};
  UpdateWriter(update, units, parameters, config, wire, balance).write(sums);
  return update;
}

Program write_rounding(std::span<const ParameterUnit> units, const MeshRank& place) {
  Program program(place.mesh, place.rank);
  Builder builder = update_builder(program);
  const auto view = [&](size_t unit) { return units[unit].distribution.view(); };
  for (const UnitGroup& group : group_units(units, view)) {
    std::vector<Value> masters, weights;
    for (const size_t index : group.units) {
      const ParameterUnit& unit = units[index];
      if (!rounds(unit)) continue;
      masters.push_back(builder.state(master_name(unit), wide_spec(unit)));
      weights.push_back(
          builder.parameter(unit.name, {{unit.elements}, unit.dtype, unit.distribution}));
    }
    if (!masters.empty()) round_to_weights(builder, masters, weights);
  }
  return program;
}

bool decays(const OptimizerConfig& config, const ParameterSpec& spec) {
  if (config.decay_rule == DecayRule::all) return true;
  if (spec.role == ParameterRole::norm || spec.role == ParameterRole::vector) return false;
  return config.decay_rule != DecayRule::no_embedding || spec.role != ParameterRole::embedding;
}

}  // namespace tessera
