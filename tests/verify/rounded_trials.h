#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/tensor_piece.h"
#include "tensor/alignment.h"
#include "verify/deviation.h"
#include "verify/layout_run.h"
#include "verify/trial_batches.h"

namespace tessera {

/// Calls visit(parameter, elements) for each block of the weights of each rank, but once for equal
/// pieces of a parameter. `elements` are indices in the whole parameter. A unit's parameters, and
/// the pieces of it that ranks keep, begin at multiples of kAlignment elements, and `block` divides
/// these. So no block has elements of two parameters.
template <typename Visit>
void for_each_block(const LayoutTrial& trial, int64_t block, Visit&& visit) {
  LayoutTrial plain = trial;
  plain.shard.axes = {};
  const StepPrograms programs = layout_programs(plain, 0);
  for (const ParameterSpec& parameter : programs.model.parameters.specs()) {
    std::vector<TensorPiece> visited;
    for (int rank = 0; rank < trial.mesh.ranks(); ++rank) {
      const TensorPiece piece(trial.mesh, parameter.distribution, parameter.shape, rank);
      if (std::ranges::find(visited, piece) != visited.end()) continue;
      visited.push_back(piece);
      for (int64_t begin = 0; begin < piece.shape().elements(); begin += block) {
        std::vector<int64_t> elements;
        for (int64_t i = begin; i < std::min(begin + block, piece.shape().elements()); ++i) {
          elements.push_back(piece.element_of_whole(i));
        }
        visit(parameter, elements);
      }
    }
  }
}

/// Returns weights for a trial that no wire format rounds: a power of two for each block of
/// integers, with random signs. Such a number is the largest of its block, and each format restores
/// it. So trials with rounded weights have the bits of others until the first update. Larger blocks
/// than kAlignment may have elements of several parameters, so all of a unit have one power.
inline NamedTensors weights_that_no_wire_rounds(const LayoutTrial& trial) {
  const int64_t block = trial.shard.unit_options.weights_wire.block;
  const bool is_large = block > kAlignment;
  NamedTensors weights;
  const auto set_block = [&](const ParameterSpec& parameter, std::span<const int64_t> elements) {
    const CounterRandom random(trial.seed, parameter.name);
    const uint64_t power = is_large ? CounterRandom(trial.seed, parameter.unit).bits(0)
                                    : random.bits(static_cast<uint64_t>(elements[0])) >> 1U;
    const double magnitude = std::ldexp(0.5, -static_cast<int>(power % 4));
    const Tensor& whole =
        weights.try_emplace(parameter.name, parameter.shape, DType::f64).first->second;
    for (const int64_t element : elements) {
      const bool negative = random.bits(static_cast<uint64_t>(element)) % 2 == 0;
      whole.values<double>()[static_cast<size_t>(element)] = negative ? -magnitude : magnitude;
    }
  };
  for_each_block(trial, is_large ? kAlignment : block, set_block);
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

/// Returns the largest relative error of gradients that travel in the trial's format, which rounds:
/// the root mean square of the errors of all elements, over that of the elements. The errors of
/// integers are even within half a step, and one element of a block may be the root of its length
/// times as large as they are on average. Addends are about independent, so the errors of their sum
/// are to it as theirs are to them. Hops add their errors: an axis of several ranks has one at
/// most. A bf16's error is even within 2^-8 of it at most, and a whole sum is rounded to it once
/// more.
inline double rounding_of_sums(const LayoutTrial& trial) {
  const Wire& wire = trial.shard.unit_options.gradients_wire;
  const auto hops = static_cast<double>(std::ranges::count_if(
      trial.mesh.axes_of(MeshView::dense), [&](Axis axis) { return trial.mesh.size(axis) > 1; }));
  if (hops == 0) return 0;
  if (wire.format == WireFormat::bf16) return 0x1p-8 * std::sqrt((hops + 1) / 3);
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

/// Gradients that travel in the trial's format differ from others by its rounding. Those that do
/// not travel, or in fp32, have the bits of others.
inline void expect_gradients_within_rounding(LayoutTrial trial) {
  trial.experts.rows_bound = 0;
  trial.shard.unit_options.weights_wire = {};
  trial.shard.unit_options.secondary_wire = {};
  const TrialBatches batches = loader_batches(trial, 1, trial.micro_batches);
  const LayoutResults found = run_layout(trial, batches);
  const bool rounds = trial.shard.unit_options.gradients_wire.format != WireFormat::fp32;
  const double bound = rounds ? rounding_of_sums(trial) : 0;
  trial.shard.unit_options.gradients_wire = {.by_level =
                                                 trial.shard.unit_options.gradients_wire.by_level};
  trial.shard.unit_options.error_feedback = 0;
  const LayoutResults exact = run_layout(trial, batches);
  if (bound == 0) {
    EXPECT_EQ(first_different_bits(exact, found), std::nullopt);
    return;
  }
  const double error = relative_error(exact.gradients[0], found.gradients[0]);
  EXPECT_LT(error, bound);
  // Tensor ranks alone sum few gradients, and those of experts may all stay where they are.
  if (trial.mesh.group_ranks(trial.mesh.axes_of(MeshView::dense).subspan(1)) > 1) {
    EXPECT_GT(error, bound / 20) << "numbers were rounded to another format, or none";
  }
}

}  // namespace tessera
