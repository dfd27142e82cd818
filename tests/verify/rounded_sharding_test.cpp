// Weights and gradients that are rounded to travel, with every other axis, schedule and optimizer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/words.h"
#include "model/parameter.h"
#include "support/random_batches.h"
#include "tensor/alignment.h"
#include "verify/deviation.h"
#include "verify/layout_trials.h"
#include "verify/pipeline_trials.h"
#include "verify/rounded_trials.h"

namespace tessera {
namespace {

/// A model of which cuts go through parameters, and leave uneven pieces.
ModelConfig cut_model(bool mixture) {
  ModelConfig model = mixture ? laid_out_mixture() : laid_out_dense();
  model.hidden_size = 32;
  model.vocabulary_size = 301;
  (mixture ? model.expert_size : model.feed_forward_size) = mixture ? 40 : 200;
  return model;
}

/// Trials of each axis: tensor, context, experts, a pipeline, and several of them.
std::vector<LayoutTrial> trials_of_each_axis() {
  std::vector<LayoutTrial> trials;
  for (const MeshSizes& sizes :
       {MeshSizes{.data = {2, 2}}, MeshSizes{.tensor = 2, .data = {2, 2}},
        MeshSizes{.context = 2, .data = {2, 2}}, MeshSizes{.data = {2, 2}, .expert = 2},
        MeshSizes{.tensor = 2, .data = {2, 2}, .expert = 4},
        MeshSizes{.context = 2, .data = {2, 2}, .expert = 4}}) {
    LayoutTrial trial{.model = cut_model(sizes.expert > 1), .mesh = Mesh(sizes)};
    trial.size = {.sequences = 4, .context = 16};
    trials.push_back(trial);
  }
  trials.push_back(trial_of(cut_model(false), {.stages = 2, .micro_batches = 2}, {.data = {2, 2}}));
  trials.push_back(trial_of(cut_model(true), {.stages = 2, .micro_batches = 2},
                            {.tensor = 2, .data = {2, 2}, .expert = 2}));
  for (LayoutTrial& trial : trials) {
    trial.compute = DType::f32;
    trial.optimizer.warmup_steps = 1;
  }
  return trials;
}

int all_axes(const LayoutTrial& trial) {
  return static_cast<int>(trial.mesh.axes_of(MeshView::dense).size()) - 1;
}
ShardAxes zero_plus_plus(const LayoutTrial& trial) {
  const int all = all_axes(trial);
  return {.weights = all, .gradients = all, .optimizer = all, .secondary = all - 1};
}
ShardAxes zero_topo(const LayoutTrial& trial) {
  const int all = all_axes(trial);
  return {.weights = 2, .gradients = all - 1, .optimizer = all, .secondary = all - 1};
}

TrialBatches batches_of_steps(const LayoutTrial& trial, int steps) {
  return {.whole = testing::random_batches(trial.size, trial.model.vocabulary_size, steps,
                                           trial.micro_batches, 7),
          .parts = {}};
}

Wire wire_of(WireFormat format) { return {.format = format, .block = 64}; }

/// What differs between two trials with the same batches.
std::optional<std::string> difference(const LayoutTrial& expected, const LayoutTrial& found,
                                      int steps = 2) {
  const TrialBatches batches = batches_of_steps(expected, steps);
  return first_different_bits(run_layout(expected, batches), run_layout(found, batches));
}

/// All formats, two at a time: those of a gather and of a second copy.
TEST(RoundedSharding, GathersWeightsOfEachAxisInEachFormat) {
  using enum WireFormat;
  for (LayoutTrial trial : trials_of_each_axis()) {
    SCOPED_TRACE(trial.mesh.text());
    const auto expect_exact = [&](const ShardAxes& axes, WireFormat weights, WireFormat copy) {
      trial.shard.axes = axes;
      trial.shard.unit_options.weights_wire = wire_of(weights);
      trial.shard.unit_options.secondary_wire = wire_of(copy);
      expect_bits_of_plain_weights(trial);
    };
    expect_exact(zero_plus_plus(trial), int4, bf16);
    expect_exact(zero_topo(trial), bf16, int8);
    trial.compute = DType::bf16;
    expect_exact(zero_topo(trial), int8, int4);
  }
}

/// With Muon, a table that two chunks have, recomputed blocks, and weights that are kept.
TEST(RoundedSharding, GathersWeightsWithEachOption) {
  for (LayoutTrial trial : trials_of_each_axis()) {
    SCOPED_TRACE(trial.mesh.text());
    trial.shard.axes = zero_topo(trial);
    trial.shard.unit_options.weights_wire = wire_of(WireFormat::int8);
    trial.shard.unit_options.secondary_wire = wire_of(WireFormat::int4);
    trial.optimizer.name = OptimizerName::muon;
    trial.model.tied_head = true;
    trial.recompute = {.norm = true, .attention = true, .experts = true};
    expect_bits_of_plain_weights(trial);
    trial.recompute = {.layer = true};
    trial.shard.unit_options.gathers_again = false;
    expect_bits_of_plain_weights(trial);
  }
}

/// The published wires, with error feedback.
CutUnitOptions integers(const ShardAxes& axes) {
  return {.weights_wire = wire_of(WireFormat::int8),
          .secondary_wire = wire_of(axes.secondary > 0 ? WireFormat::int8 : WireFormat::fp32),
          .gradients_wire = wire_of(WireFormat::int4),
          .error_feedback = 0.8};
}

/// Stages and their schedules change no rounding: each unit is on one stage, and its micro-batches
/// come in order.
TEST(RoundedSharding, HasTheSameBitsWithEverySchedule) {
  using enum ScheduleKind;
  bool mixture = false;
  for (const PipelineCut& cut :
       {PipelineCut{.kind = all_forward_all_backward, .micro_batches = 3},
        PipelineCut{.kind = one_forward_one_backward, .micro_batches = 3},
        PipelineCut{.kind = interleaved, .chunks_per_stage = 2, .micro_batches = 2},
        PipelineCut{.kind = flexible, .chunks_per_stage = 2, .micro_batches = 3},
        PipelineCut{.kind = zero_bubble_h1, .micro_batches = 3},
        PipelineCut{.kind = zero_bubble_v, .chunks_per_stage = 2, .micro_batches = 4},
        PipelineCut{.kind = dualpipe_v, .chunks_per_stage = 2, .micro_batches = 4}}) {
    mixture = !mixture;
    ModelConfig model = cut_model(mixture);
    model.layers = cut.chunks();
    // Each stage would add up the routers' losses of its own layers.
    model.balance_coefficient = model.router_z_coefficient = 0;
    LayoutTrial trial = trial_of(model, cut, {.data = {2, 2}});
    SCOPED_TRACE(cut.text());
    trial.compute = DType::f32;
    trial.shard.axes = is_v(cut.kind) ? zero_topo(trial) : zero_plus_plus(trial);
    trial.shard.unit_options = integers(trial.shard.axes);
    LayoutTrial whole = trial;
    whole.mesh = Mesh({.data = {2, 2}});
    whole.pipeline = {};
    EXPECT_EQ(difference(whole, trial), std::nullopt);
  }
}

/// A weight is rounded alike whenever it is gathered, on any number of threads.
TEST(RoundedSharding, HasTheSameBitsHoweverWeightsAreKept) {
  for (LayoutTrial trial : trials_of_each_axis()) {
    SCOPED_TRACE(trial.mesh.text());
    trial.shard.axes = zero_plus_plus(trial);
    trial.shard.axes.secondary = 0;
    trial.shard.unit_options = integers(trial.shard.axes);
    LayoutTrial kept = trial;
    kept.shard.unit_options.gathers_again = false;
    EXPECT_EQ(difference(trial, kept), std::nullopt);
    LayoutTrial copied = trial;  // as the forward pass has received them
    copied.shard.axes.secondary = all_axes(trial) - 1;
    copied.recompute = {.layer = true};
    copied.threads = 2 * trial.mesh.ranks();
    EXPECT_EQ(difference(trial, copied), std::nullopt);
  }
}

/// A group of one rank shares nothing: it gathers, sums and rounds what others do.
TEST(RoundedSharding, OverOneRankOfANodeHasTheBitsOfUncutState) {
  LayoutTrial trial{.model = cut_model(false), .mesh = Mesh({.data = {1, 3}})};
  trial.size = {.sequences = 3, .context = 16};
  trial.compute = DType::f32;
  const int node = all_axes(trial) - 1, all = all_axes(trial);
  trial.shard.unit_options = integers({.secondary = node});
  LayoutTrial cut = trial;
  cut.shard.axes = {.weights = node, .gradients = node, .optimizer = node, .secondary = node};
  EXPECT_EQ(difference(trial, cut), std::nullopt);
  trial.shard.axes = {.weights = all, .gradients = all, .optimizer = all};
  LayoutTrial copied = trial;
  copied.shard.axes.secondary = node;
  EXPECT_EQ(difference(trial, copied), std::nullopt);
}

/// Tensor ranks sum the gradients of norms and routers, which no other rank has.
TEST(RoundedSharding, OverOneRankOfAModelHasTheBitsOfUncutState) {
  for (const OptimizerName optimizer : {OptimizerName::adamw, OptimizerName::muon}) {
    LayoutTrial trial{.model = cut_model(true), .mesh = Mesh({.tensor = 2, .expert = 2})};
    trial.size = {.sequences = 4, .context = 16};
    trial.compute = DType::f32;
    trial.optimizer.name = optimizer;
    trial.shard.unit_options.gradients_wire = wire_of(WireFormat::bf16);
    LayoutTrial cut = trial;
    cut.shard.axes = zero_plus_plus(cut);
    EXPECT_EQ(difference(trial, cut), std::nullopt);
  }
}

TEST(RoundedSharding, SumsGradientsOfEachAxisWithinTheRoundingOfTheirFormat) {
  using enum WireFormat;
  for (LayoutTrial trial : trials_of_each_axis()) {
    const int all = all_axes(trial);
    const TrialBatches batches = batches_of_steps(trial, 1);
    const LayoutResults exact = run_layout(trial, batches);
    const auto expect_within_rounding = [&](const ShardAxes& axes, WireFormat format) {
      SCOPED_TRACE(fmt::format("{}, {}, weights {}, gradients {}, optimizer {}", trial.mesh.text(),
                               word(format), axes.weights, axes.gradients, axes.optimizer));
      trial.shard.axes = axes;
      trial.shard.unit_options.gradients_wire = wire_of(format);
      const LayoutResults found = run_layout(trial, batches);
      EXPECT_NEAR(found.steps[0].results.cross_entropy / exact.steps[0].results.cross_entropy, 1,
                  1e-6);
      const double bound = rounding_of_sums(trial);
      const double error = relative_error(exact.gradients[0], found.gradients[0]);
      EXPECT_LT(error, bound);
      EXPECT_GT(error, bound / 10) << "numbers were rounded to another format, or none";
    };
    expect_within_rounding({}, bf16);
    expect_within_rounding({.optimizer = all}, int4);
    expect_within_rounding({.gradients = all, .optimizer = all}, int8);
    expect_within_rounding({.weights = all, .gradients = all, .optimizer = all}, bf16);
    expect_within_rounding(zero_topo(trial), int4);
    // Each group of experts' ranks keeps a copy of the other states.
    if (trial.model.mixture()) {
      expect_within_rounding({.optimizer = all, .outside_experts = 2}, int8);
    }
  }
}

/// Returns the weights with which a trial begins.
NamedTensors drawn_weights(const LayoutTrial& trial) {
  NamedTensors weights;
  for_each_block(trial, kAlignment, [&](const ParameterSpec& parameter, const auto&) {
    const auto [found, is_new] = weights.try_emplace(parameter.name, parameter.shape, DType::f32);
    if (is_new) initialize(parameter, trial.seed, TensorPiece(parameter.shape), found->second, 1);
  });
  return weights;
}

/// Returns the standard deviation of the error of a loss with these gradients, if weights are
/// rounded to int8: the sum of the independent errors of all weights, times their gradients. They
/// are even within half a step of the weight's block. The largest weight of a block has none.
double deviation_of_loss(const LayoutTrial& trial, const NamedTensors& gradients) {
  const NamedTensors weights = drawn_weights(trial);
  double variance = 0;
  for_each_block(
      trial, trial.shard.unit_options.weights_wire.block,
      [&](const ParameterSpec& parameter, std::span<const int64_t> elements) {
        const auto found = gradients.find(parameter.name);
        if (found == gradients.end()) return;  // no optimizer changes it
        const Tensor& whole = weights.at(parameter.name);
        const auto magnitude = [&](int64_t element) {
          return std::abs(whole.values<float>()[static_cast<size_t>(element)]);
        };
        const float largest = magnitude(*std::ranges::max_element(elements, {}, magnitude));
        for (const int64_t element : elements) {
          if (magnitude(element) == largest) continue;
          const float gradient = found->second.values<float>()[static_cast<size_t>(element)];
          variance += std::pow(largest / 127 * gradient, 2) / 12;
        }
      });
  return std::sqrt(variance);
}

/// Errors of losses of the first step, in standard deviations. Each trial draws other weights, so
/// the root mean square of these independent errors is near 1.
TEST(RoundedSharding, OfEachAxisHasLossesWithinTheRoundingOfWeights) {
  double squares = 0;
  int count = 0;
  for (LayoutTrial trial : trials_of_each_axis()) {
    trial.model.experts_per_token = trial.model.experts;  // so that no token chooses others
    for (const ShardAxes& axes : {zero_plus_plus(trial), zero_topo(trial)}) {
      SCOPED_TRACE(trial.mesh.text());
      trial.seed = static_cast<uint64_t>(++count);
      const TrialBatches batches = batches_of_steps(trial, 1);
      trial.shard = {};
      const LayoutResults exact = run_layout(trial, batches);
      trial.shard = {.axes = axes, .unit_options = {.weights_wire = wire_of(WireFormat::int8)}};
      trial.shard.unit_options.secondary_wire = wire_of(WireFormat::int8);
      const double error = run_layout(trial, batches).steps[0].results.cross_entropy -
                           exact.steps[0].results.cross_entropy;
      const double deviations = error / deviation_of_loss(trial, exact.gradients[0]);
      EXPECT_LT(std::abs(deviations), 6);
      EXPECT_NE(deviations, 0);
      squares += deviations * deviations;
    }
  }
  const double deviations = std::sqrt(squares / count);
  EXPECT_GT(deviations, 0.6) << "weights were rounded less, or not";
  EXPECT_LT(deviations, 1.6) << "weights were rounded to fewer bits";
}

}  // namespace
}  // namespace tessera
