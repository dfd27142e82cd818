#pragma once

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "base/random.h"
#include "verify/deviation.h"
#include "verify/layout_run.h"
#include "verify/trial_batches.h"

namespace tessera {

/// Returns weights for a trial that no wire format rounds: a quarter with a random sign. Such a
/// number is the largest of its block, and each format restores it. So trials with rounded weights
/// have the bits of others until the first update.
inline NamedTensors weights_that_no_wire_rounds(const LayoutTrial& trial) {
  LayoutTrial one_rank = trial;
  one_rank.mesh = Mesh();
  one_rank.shard.axes = {};
  const StepPrograms programs = layout_programs(one_rank, 0);
  NamedTensors weights;
  for (const ParameterSpec& parameter : programs.model.parameters.specs()) {
    const CounterRandom random(trial.seed, parameter.name);
    const Tensor whole(parameter.shape, DType::f64);
    uint64_t index = 0;
    for (double& value : whole.values<double>()) value = random.bits(index++) % 2 == 0 ? 0.25 : -0.25;
    weights.emplace(parameter.name, whole);
  }
  return weights;
}

/// A step with weights that no wire rounds has the bits of one in which weights travel as they are,
/// and no second copies are gathered.
inline void expect_bits_of_plain_weights(LayoutTrial trial) {
  trial.initial = weights_that_no_wire_rounds(trial);
  trial.experts.rows_bound = 0;  // weights of one magnitude choose few experts
  const TrialBatches batches = loader_batches(trial, 1, trial.micro_batches);
  const LayoutResults rounded = run_layout(trial, batches);
  trial.shard.unit_options.weights_wire = {};
  trial.shard.unit_options.secondary_wire = {};
  trial.shard.axes.secondary = 0;
  EXPECT_EQ(first_different_bits(run_layout(trial, batches), rounded), std::nullopt);
}

}  // namespace tessera
