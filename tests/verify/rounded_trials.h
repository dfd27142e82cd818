#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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
    for (double& value : whole.values<double>())
      value = random.bits(index++) % 2 == 0 ? 0.25 : -0.25;
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

/// Returns the largest relative error of gradients that travel in the trial's format: the root mean
/// square of the errors of all elements, over that of the elements. The errors of integers are even
/// within half a step, and one element of a block may be the root of its length times as large as
/// they are on average. Addends are about independent, so the errors of their sum are to it as
/// theirs are to them. Hops add their errors: an axis has one at most.
inline double rounding_of_sums(const LayoutTrial& trial) {
  const Wire& wire = trial.shard.unit_options.gradients_wire;
  const auto hops = static_cast<double>(trial.mesh.axes_of(MeshView::dense).size());
  if (wire.format == WireFormat::bf16) return 0x1p-9 * std::sqrt(hops);
  const double steps = wire.format == WireFormat::int8 ? 127 : 7;  // to either side of zero
  return std::sqrt(static_cast<double>(wire.block) / 12 * hops) / steps;
}

/// Returns the root mean square of the differences of all elements, over that of the elements.
inline double relative_error(const NamedTensors& expected, const NamedTensors& found) {
  double differences = 0, squares = 0;
  for (const auto& [name, tensor] : expected) {
    const std::span<const float> a = tensor.values<float>(), b = found.at(name).values<float>();
    for (size_t i = 0; i < a.size(); ++i) {
      differences += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      squares += std::pow(static_cast<double>(a[i]), 2);
    }
  }
  return std::sqrt(differences / squares);
}

/// Gradients that travel in the trial's format differ from others by its rounding.
inline void expect_gradients_within_rounding(LayoutTrial trial) {
  trial.experts.rows_bound = 0;
  trial.shard.unit_options.weights_wire = {};
  trial.shard.unit_options.secondary_wire = {};
  const TrialBatches batches = loader_batches(trial, 1, trial.micro_batches);
  const LayoutResults found = run_layout(trial, batches);
  const double bound = rounding_of_sums(trial);
  trial.shard.unit_options.gradients_wire.format = WireFormat::fp32;
  const LayoutResults exact = run_layout(trial, batches);
  const double error = relative_error(exact.gradients[0], found.gradients[0]);
  EXPECT_LT(error, bound);
}

}  // namespace tessera
