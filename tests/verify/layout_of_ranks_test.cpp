#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/world.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "support/layouts.h"
#include "support/random_batches.h"
#include "verify/deviation.h"
#include "verify/layout_trials.h"
#include "verify/verify.h"

namespace tessera {
namespace {

/// Experts that drop among each rank's own tokens do what those of one rank do that takes the
/// ranks' micro-batches one after the other.
TEST(LayoutOfRanks, MayDropAmongEachRanksTokens) {
  LayoutTrial trial{
      .model = laid_out_mixture(), .size = {.sequences = 8, .context = 16}, .mesh = {}};
  trial.model.capacity_factor = 1.1;
  trial.model.balance_tokens = BalanceTokens::rank;  // the same tokens
  const auto batches = testing::random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
  for (const auto exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
    for (const MeshSizes& sizes :
         {MeshSizes{.data = {2}}, MeshSizes{.data = {2}, .expert = 2},
          MeshSizes{.data = {4}, .expert = 2}, MeshSizes{.data = {2, 2}, .expert = 4}}) {
      const Mesh mesh(sizes);
      SCOPED_TRACE(mesh.text() + ", " + std::string(word(exchange)));
      LayoutTrial one = trial;
      one.parts = mesh.ranks();
      const LayoutResults expected = run_layout(one, batches);
      LayoutTrial several = trial;
      several.mesh = mesh;
      several.experts = {.exchange = exchange, .capacity_tokens = TokenSet::rank};
      expect_same_model(expected, run_layout(several, batches));
      // The micro-batch of all ranks drops others.
      several.experts.capacity_tokens = TokenSet::micro_batch;
      const LayoutResults of_all = run_layout(several, batches);
      EXPECT_GT(
          std::abs(of_all.steps[0].results.cross_entropy / expected.steps[0].results.cross_entropy -
                   1),
          1e-6);
    }
  }
}

/// Levels of the data axis are the same ranks with the same parts. Only gradients are summed in
/// another order, so the losses of the first step have the bits of one level. All else has those of
/// one rank that adds up parts in that order, where each rank computes a part by itself.
TEST(LayoutOfRanks, MayHaveLevelsOfTheDataAxis) {
  int compared_bits = 0;
  for (const ModelConfig& model : {laid_out_dense(), laid_out_mixture()}) {
    LayoutTrial trial{.model = model, .size = {.sequences = 8, .context = 16}, .mesh = {}};
    const auto batches = testing::random_batches(trial.size, model.vocabulary_size, 2, 2, 5);
    const LayoutResults one_rank = run_layout(trial, batches);
    const int expert = model.mixture() ? 4 : 1;
    for (const MeshSizes& sizes : {MeshSizes{.data = {2, 2}, .expert = expert},
                                   MeshSizes{.tensor = 2, .data = {2, 2}, .expert = expert},
                                   MeshSizes{.data = {2, 4}, .expert = expert}}) {
      trial.mesh = Mesh(sizes);
      SCOPED_TRACE(trial.mesh.text());
      const LayoutResults found = run_layout(trial, batches);
      expect_same_model(one_rank, found);
      if (why_bits_not_compared(trial).empty()) {
        LayoutTrial parts = trial;
        parts.mesh = Mesh();
        parts.parts = trial.mesh.ranks();
        parts.sum_order.levels = sizes.data;
        EXPECT_EQ(first_different_bits(run_layout(parts, batches), found), std::nullopt);
        ++compared_bits;
      }
      MeshSizes one_level = sizes;
      one_level.data = {sizes.data[0] * sizes.data[1]};
      trial.mesh = Mesh(one_level);
      const LayoutResults in_one_step = run_layout(trial, batches);
      EXPECT_EQ(in_one_step.steps[0].results.cross_entropy, found.steps[0].results.cross_entropy);
      EXPECT_EQ(in_one_step.steps[0].results.balance, found.steps[0].results.balance);
      expect_same_model(in_one_step, found);
    }
  }
  EXPECT_EQ(compared_bits, 2);
}

/// A rank whose targets are all left out adds nothing, and no NaN.
TEST(LayoutOfRanks, MayHaveNoTargetOnARank) {
  LayoutTrial trial{
      .model = laid_out_mixture(), .size = {.sequences = 4, .context = 8}, .mesh = {}};
  auto batches = testing::random_batches(trial.size, trial.model.vocabulary_size, 2, 1, 5);
  for (std::vector<Batch>& step : batches) {
    Batch& batch = step.front();
    for (size_t t = 0; t < 16; ++t) {  // the first two sequences, which the first rank has
      batch.target_count -= batch.targets[t] >= 0 ? 1 : 0;
      batch.targets[t] = -1;
    }
  }
  const LayoutResults expected = run_layout(trial, batches);
  trial.mesh = Mesh({.data = {2}, .expert = 2});
  const LayoutResults found = run_layout(trial, batches);
  EXPECT_TRUE(found.steps.back().results.updated);
  EXPECT_NEAR(found.steps.back().results.cross_entropy, expected.steps.back().results.cross_entropy,
              1e-12);
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(relative_difference(tensor, found.weights.at(name)), 1e-10) << name;
  }
}

/// Pinned choices are those that are given, whatever the routers would choose, in every layout.
TEST(LayoutOfRanks, TakesPinnedChoicesOfExperts) {
  LayoutTrial trial{
      .model = laid_out_mixture(), .size = {.sequences = 8, .context = 16}, .mesh = {}};
  const auto batches = testing::random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
  const LayoutResults own = run_layout(trial, batches);
  ASSERT_EQ(own.choices.size(), 2U);
  ASSERT_EQ(own.choices[0].size(), 2U);
  ASSERT_EQ(own.choices[0][0].size(), 2U);
  EXPECT_EQ(own.choices[0][0][0].size(), 8U * 16 * 3);
  // Each token takes the experts after those that it chose itself.
  trial.pinned = own.choices;
  std::vector<std::vector<double>> counts(2, std::vector<double>(8));
  for (auto& micro_batch : trial.pinned[1]) {
    for (size_t layer = 0; layer < 2; ++layer) {
      for (int32_t& expert : micro_batch[layer]) {
        expert = (expert + 1) % 8;
        ++counts[layer][static_cast<size_t>(expert)];
      }
    }
  }
  const LayoutResults pinned = run_layout(trial, batches);
  EXPECT_EQ(pinned.steps[0], own.steps[0]);
  EXPECT_EQ(pinned.steps[1].expert_tokens, counts);
  EXPECT_NE(pinned.steps[1].results, own.steps[1].results);
  for (const MeshSizes& sizes : few_layouts(true)) {
    trial.mesh = Mesh(sizes);
    SCOPED_TRACE(trial.mesh.text());
    const LayoutResults found = run_layout(trial, batches);
    EXPECT_EQ(found.steps[1].expert_tokens, counts);
    EXPECT_NEAR(found.steps[1].results.cross_entropy, pinned.steps[1].results.cross_entropy, 1e-12);
    for (const auto& [name, tensor] : pinned.weights) {
      EXPECT_LT(relative_difference(tensor, found.weights.at(name)), 1e-10) << name;
    }
  }
}

/// The norm of gradients that are all ones is the root of their number, in every layout: no piece
/// is forgotten and none counts twice.
TEST(LayoutOfRanks, HasTheNormOfOnesWhereAllGradientsAreOnes) {
  ModelConfig model = laid_out_mixture();
  model.vocabulary_size = 33;
  for (const MeshSizes& sizes : few_layouts(true)) {
    const Mesh mesh(sizes);
    SCOPED_TRACE(mesh.text());
    World world(mesh.ranks());
    run_ranks(world, [&](int rank) {
      RankGroups groups(mesh, rank, [&](std::span<const int> ranks, std::string_view lane) {
        return world.group(rank, ranks, lane);
      });
      Runtime runtime(host_target(1));
      runtime.join(groups);
      const ProgramSize size{.sequences = 8, .context = 16};
      const StepPrograms programs = step_programs(
          write_training(model, DType::f64, size, {}, {mesh, rank}), OptimizerConfig{});
      Executor executor(programs.list(), programs.actions(), runtime);
      const ParameterList& parameters = programs.model.parameters;
      for (const ParameterSpec& spec : parameters.specs()) {
        const ParameterUnit& unit = parameters.units()[static_cast<size_t>(spec.unit_index)];
        double addends = 1;  // each rank has an equal part of a sum that is not taken yet
        for (const Axis axis : mesh.axes_of(unit.gradient_distribution.view())) {
          const bool partial = unit.gradient_distribution.on(axis).placement == Placement::partial;
          if (partial) addends *= mesh.size(axis);
        }
        const Tensor gradient =
            executor.tensor("gradient:" + unit.name).view(spec.unit_offset, spec.piece_shape);
        for (double& element : gradient.values<double>()) element = 1 / addends;
      }
      executor.run({.segment = Segment::whole, .program = programs.update_number()});
      const Tensor& norm = executor.tensor(programs.update.gradient_norm, programs.update_number());
      EXPECT_DOUBLE_EQ(*norm.data<double>(), std::sqrt(static_cast<double>(parameters.elements())));
    });
  }
}

}  // namespace
}  // namespace tessera
