#include "state/update_program.h"

#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/round.h"
#include "ops/update/sum_of_squares.h"
#include "ops/update/zero.h"
#include "program/builder.h"

namespace tessera {
namespace {

/// The unit's values in the program that is being written.
struct UnitValues {
  UnitValues(Builder& builder, const ParameterUnit& unit)
      : weight(builder.parameter(unit.name, {{unit.elements}, unit.dtype, {}})),
        gradient(builder.main_gradient(weight)) {}
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
  return builder.state(sum.name, {sum.shape, DType::f64, {}});
}

AdamWUnit adamw_unit(Builder& builder, const ParameterUnit& unit, const UnitValues& values) {
  const Spec wide{{unit.elements}, accumulation_dtype(unit.dtype), {}};
  AdamWUnit result{.gradient = values.gradient,
                   .first_moment = builder.state(first_moment_name(unit), wide),
                   .second_moment = builder.state(second_moment_name(unit), wide),
                   .master = values.weight,
                   .weight = {}};
  if (rounds(unit)) {
    result.master = builder.state(master_name(unit), wide);
    result.weight = values.weight;
  }
  return result;
}

}  // namespace

Program write_step_start(std::span<const ParameterUnit> units, std::span<const StepSum> sums) {
  Program program;
  Builder builder = update_builder(program);
  std::vector<Value> values;
  for (const ParameterUnit& unit : units) values.push_back(UnitValues(builder, unit).gradient);
  for (const StepSum& sum : sums) values.push_back(declare(builder, sum));
  zero(builder, values);
  return program;
}

UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters,
                           std::span<const StepSum> losses, const OptimizerConfig& config) {
  UpdateProgram update;
  Builder builder = update_builder(update.program);
  const Spec scalar{{1}, DType::f64, {}};
  update.learning_rate = builder.input("learning_rate", scalar);
  update.clip_norm = builder.input("clip_norm", scalar);
  update.step = builder.input("step", scalar);
  std::vector<AdamWUnit> states;
  std::vector<Value> gradients;
  for (const ParameterUnit& unit : units) {
    states.push_back(adamw_unit(builder, unit, UnitValues(builder, unit)));
    gradients.push_back(states.back().gradient);
  }
  std::vector<AdamWSection> sections;
  std::vector<Section> squared;
  for (const ParameterSpec& parameter : parameters) {
    const Section section{.unit = parameter.unit_index,
                          .begin = parameter.unit_offset,
                          .end = parameter.unit_offset + parameter.piece_shape.elements()};
    sections.push_back({section, decays(config, parameter)});
    squared.push_back(section);
  }
  std::vector<Value> loss_values;
  for (const StepSum& loss : losses) loss_values.push_back(declare(builder, loss));

  const Value squares = sum_of_squares(builder, gradients, std::move(squared));
  const Clipped clipped = clip_gradients(builder, squares, update.clip_norm, loss_values);
  update.gradient_norm = clipped.norm;
  builder.name(update.gradient_norm, "gradient_norm");
  builder.output(update.gradient_norm);
  update.scale = clipped.scale;
  builder.output(update.scale);
  adamw(builder,
        {.scale = clipped.scale, .learning_rate = update.learning_rate, .step = update.step},
        states, std::move(sections),
        {.beta1 = config.beta1,
         .beta2 = config.beta2,
         .epsilon = config.epsilon,
         .weight_decay = config.weight_decay});
  return update;
}

Program write_rounding(std::span<const ParameterUnit> units) {
  Program program;
  Builder builder = update_builder(program);
  std::vector<Value> masters, weights;
  for (const ParameterUnit& unit : units) {
    if (!rounds(unit)) continue;
    const Spec wide{{unit.elements}, accumulation_dtype(unit.dtype), {}};
    masters.push_back(builder.state(master_name(unit), wide));
    weights.push_back(builder.parameter(unit.name, {{unit.elements}, unit.dtype, {}}));
  }
  if (!masters.empty()) round_to_weights(builder, masters, weights);
  return program;
}

bool decays(const OptimizerConfig& config, const ParameterSpec& spec) {
  if (config.decay_rule == DecayRule::all) return true;
  if (spec.role == ParameterRole::norm) return false;
  return config.decay_rule != DecayRule::no_embedding || spec.role != ParameterRole::embedding;
}

}  // namespace tessera
