#include "train/layout_run.h"

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/world.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "support/relative_difference.h"

namespace tessera {
namespace {

double relative_difference(const Tensor& expected, const Tensor& found) {
  return testing::relative_difference(expected.values<double>(), found.values<double>());
}

ModelConfig dense() {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 16;
  config.heads = 4;
  config.kv_heads = 4;
  config.feed_forward_size = 24;
  config.vocabulary_size = 32;
  config.initialization_deviation = 0.2;
  return config;
}

ModelConfig mixture() {
  ModelConfig config = dense();
  config.feed_forward_size = 0;
  config.experts = 8;
  config.experts_per_token = 3;
  config.expert_size = 12;
  config.balance_coefficient = 0.05;
  config.router_z_coefficient = 0.01;
  return config;
}

/// A model with some keys changed, and how its ranks share it.
struct Case {
  std::string name;
  ModelConfig model;
  std::function<void(LayoutTrial&)> change = [](LayoutTrial&) {};
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

std::vector<Case> cases() {
  const auto with = [](ModelConfig config, auto&& change) {
    change(config);
    return config;
  };
  return {
      {"dense", dense()},
      {"few_key_heads", with(dense(), [](ModelConfig& c) { c.kv_heads = 1; })},
      {"row_norms", with(dense(),
                         [](ModelConfig& c) {
                           c.query_key_norm = QueryKeyNorm::projection;
                           c.clip_qkv = 0.6;
                         })},
      {"head_norms_tied", with(dense(),
                               [](ModelConfig& c) {
                                 c.query_key_norm = QueryKeyNorm::head;
                                 c.tied_head = true;
                                 c.z_loss_coefficient = 0.01;
                               })},
      {"norms_without_weights", with(dense(),
                                     [](ModelConfig& c) {
                                       c.norm = NormKind::layer;
                                       c.norm_weights = false;
                                       c.query_key_norm = QueryKeyNorm::projection;
                                     })},
      {"uneven", with(dense(),
                      [](ModelConfig& c) {
                        c.vocabulary_size = 37;
                        c.feed_forward_size = 27;
                      })},
      {"uneven_tied",
       with(dense(),
            [](ModelConfig& c) {
              c.vocabulary_size = 257;
              c.feed_forward_size = 7;
              c.tied_head = true;
            }),
       [](LayoutTrial& trial) { trial.recompute.layer = true; }},
      {"uneven_mixture", with(mixture(),
                              [](ModelConfig& c) {
                                c.vocabulary_size = 33;
                                c.shared_experts = 1;
                                c.expert_size = 13;
                                c.dense_layers = 1;
                                c.feed_forward_size = 21;
                              })},
      {"recomputed", dense(),
       [](LayoutTrial& trial) { trial.recompute = {.norm = true, .attention = true}; }},
      {"mixture", mixture()},
      {"mixture_all_gather", mixture(),
       [](LayoutTrial& trial) { trial.experts.exchange = ExpertExchange::all_gather; }},
      {"mixture_all_to_all", mixture(),
       [](LayoutTrial& trial) { trial.experts.exchange = ExpertExchange::all_to_all; }},
      {"mixture_shared_dense_renormalised", with(mixture(),
                                                 [](ModelConfig& c) {
                                                   c.shared_experts = 1;
                                                   c.dense_layers = 1;
                                                   c.feed_forward_size = 24;
                                                   c.renormalise_weights = true;
                                                 })},
      {"mixture_pooled_recomputed",
       with(mixture(), [](ModelConfig& c) { c.balance_form = BalanceForm::pooled; }),
       [](LayoutTrial& trial) {
         trial.recompute.layer = true;
         trial.experts.exchange = ExpertExchange::all_to_all;
       }},
      {"mixture_recomputed_experts_all_gather", mixture(),
       [](LayoutTrial& trial) {
         trial.recompute.experts = true;
         trial.experts.exchange = ExpertExchange::all_gather;
       }},
      {"mixture_recomputed_experts_all_to_all", mixture(),
       [](LayoutTrial& trial) {
         trial.recompute.experts = true;
         trial.experts.exchange = ExpertExchange::all_to_all;
       }},
      {"mixture_capacity", with(mixture(), [](ModelConfig& c) { c.capacity_factor = 1.1; })},
      {"mixture_forced", with(mixture(), [](ModelConfig& c) { c.forced_uniform_routing = true; })},
  };
}

std::vector<MeshSizes> meshes(bool experts) {
  std::vector<MeshSizes> result{{.data = {2}},
                                {.tensor = 2},
                                {.tensor = 4},
                                {.context = 2},
                                {.tensor = 2, .data = {2}},
                                {.context = 2, .data = {2, 2}},
                                {.tensor = 2, .context = 2, .data = {2}}};
  if (!experts) return result;
  for (const int ranks : {2, 4, 8}) {
    result.push_back({.data = {ranks}, .expert = ranks});
    result.push_back({.tensor = 2, .data = {2}, .expert = std::min(ranks, 4)});
  }
  result.push_back({.tensor = 2, .context = 2, .data = {4}, .expert = 8});
  result.push_back({.context = 2, .expert = 2});
  result.push_back({.context = 2, .data = {2}, .expert = 4});
  result.push_back({.tensor = 4, .expert = 4});
  result.push_back({.tensor = 4, .data = {2}, .expert = 2});
  result.push_back({.tensor = 4, .data = {2}, .expert = 8});
  return result;
}

class LayoutRun : public ::testing::TestWithParam<Case> {};

void expect_same_model(const LayoutResults& expected, const LayoutResults& found) {
  ASSERT_EQ(expected.steps.size(), found.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
    EXPECT_NEAR(b.cross_entropy / a.cross_entropy, 1, 1e-12);
    EXPECT_NEAR(b.balance, a.balance, 1e-12 * a.balance);
    EXPECT_NEAR(b.router_z, a.router_z, 1e-12 * a.router_z);
    EXPECT_NEAR(b.gradient_norm / a.gradient_norm, 1, 1e-12);
    EXPECT_EQ(expected.steps[i].expert_tokens, found.steps[i].expert_tokens);
  }
  for (const auto& [name, tensor] : expected.gradients) {
    EXPECT_LT(relative_difference(tensor, found.gradients.at(name)), 1e-11) << name;
  }
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(relative_difference(tensor, found.weights.at(name)), 1e-10) << name;
  }
}

TEST_P(LayoutRun, GivesWhatOneRankGives) {
  LayoutTrial trial{.model = GetParam().model,
                    .size = {.sequences = 8, .context = 16, .document_mask = true},
                    .mesh = {}};
  GetParam().change(trial);
  const auto batches = random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
  const LayoutResults expected = run_layout(trial, batches);
  for (const MeshSizes& sizes : meshes(trial.model.mixture())) {
    trial.mesh = Mesh(sizes);
    SCOPED_TRACE(trial.mesh.text());
    expect_same_model(expected, run_layout(trial, batches));
  }
}

/// Experts that drop among each rank's own tokens do what those of one rank do that takes the
/// ranks' micro-batches one after the other.
TEST(LayoutOfRanks, MayDropAmongEachRanksTokens) {
  LayoutTrial trial{.model = mixture(), .size = {.sequences = 8, .context = 16}, .mesh = {}};
  trial.model.capacity_factor = 1.1;
  trial.model.balance_tokens = BalanceTokens::rank;  // the same tokens
  const auto batches = random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
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

/// A rank whose targets are all left out adds nothing, and no NaN.
TEST(LayoutOfRanks, MayHaveNoTargetOnARank) {
  LayoutTrial trial{.model = mixture(), .size = {.sequences = 4, .context = 8}, .mesh = {}};
  auto batches = random_batches(trial.size, trial.model.vocabulary_size, 2, 1, 5);
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
  LayoutTrial trial{.model = mixture(), .size = {.sequences = 8, .context = 16}, .mesh = {}};
  const auto batches = random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
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
  for (const MeshSizes& sizes : meshes(true)) {
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
  ModelConfig model = mixture();
  model.vocabulary_size = 33;
  for (const MeshSizes& sizes : meshes(true)) {
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
      const ParameterList& parameters = programs.chunks.front().parameters;
      for (const ParameterSpec& spec : parameters.specs()) {
        const ParameterUnit& unit = parameters.units()[static_cast<size_t>(spec.unit_index)];
        double addends = 1;  // each rank has an equal part of a sum that is not taken yet
        for (const Axis axis : mesh.of_view(unit.gradient_distribution.view())) {
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

INSTANTIATE_TEST_SUITE_P(Models, LayoutRun, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tessera
