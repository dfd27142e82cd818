#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/random_batches.h"
#include "support/small_family.h"
#include "verify/changed_programs.h"
#include "verify/deviation.h"
#include "verify/layout_trials.h"
#include "verify/pipeline_trials.h"
#include "verify/verify.h"

namespace tessera {
namespace {

/// Every valid triple of placements on a mesh: each part of the state over none of the axes that
/// may cut it, or the innermost one, or two, and so on; weights over no more than gradients, and
/// these over no more than the optimizer's states.
std::vector<ShardAxes> every_triple(const Mesh& mesh) {
  const int most = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1;
  std::vector<ShardAxes> triples;
  for (int weights = 0; weights <= most; ++weights) {
    for (int gradients = weights; gradients <= most; ++gradients) {
      for (int optimizer = gradients; optimizer <= most; ++optimizer) {
        triples.push_back({weights, gradients, optimizer});
      }
    }
  }
  return triples;
}

std::string text_of(const ShardAxes& axes) {
  return fmt::format("weights {}, gradients {}, optimizer {}", axes.weights, axes.gradients,
                     axes.optimizer);
}

LayoutTrial trial_on(const MeshSizes& sizes, ModelConfig model) {
  LayoutTrial trial{.model = std::move(model), .mesh = Mesh(sizes)};
  trial.size = {.sequences = 8, .context = 16};
  return trial;
}

void expect_model_of_one_rank(const LayoutTrial& trial) {
  const TrialBatches batches{
      .whole = testing::random_batches(trial.size, trial.model.vocabulary_size, 2,
                                       trial.micro_batches, 7),
      .parts = {}};
  LayoutTrial one_rank = trial;
  one_rank.mesh = Mesh();
  one_rank.shard = {};
  expect_same_model(run_layout(one_rank, batches), run_layout(trial, batches));
}

TEST(Sharding, OfEveryTripleOfPlacementsTrainsTheModelOfOneRank) {
  for (const std::vector<int>& data : {std::vector{2, 2, 2}, std::vector{2, 4}}) {
    LayoutTrial trial = trial_on({.data = data}, laid_out_dense());
    for (const ShardAxes& axes : every_triple(trial.mesh)) {
      SCOPED_TRACE(fmt::format("{}: {}", trial.mesh.text(), text_of(axes)));
      trial.shard.axes = axes;
      expect_model_of_one_rank(trial);
    }
  }
}

/// Muon, tied heads and recomputed blocks take turns.
LayoutTrial with_options_of(LayoutTrial trial, size_t turn) {
  if (turn % 4 == 0) trial.optimizer.name = OptimizerName::muon;
  trial.model.tied_head = turn / 4 % 2 == 0;
  if (turn % 3 == 1) trial.recompute = {.norm = true, .attention = true, .experts = true};
  if (turn % 3 == 2) trial.recompute = {.layer = true};
  return trial;
}

/// Cuts go through matrices, which the tensor axis splits unevenly. Each triple has one axis or two
/// of the four: their turns come in another order on each axis.
TEST(Sharding, OfEveryTripleGoesWithOtherAxes) {
  constexpr size_t kTurns = 3;
  size_t turn = 0;
  for (const std::vector<int>& data : {std::vector{2, 2, 2}, std::vector{2, 4}}) {
    for (const MeshSizes& sizes :
         {MeshSizes{.tensor = 2, .data = data}, MeshSizes{.context = 2, .data = data},
          MeshSizes{.data = data, .expert = 2}, MeshSizes{.pipeline = 2, .data = data}}) {
      ModelConfig model = sizes.expert > 1 ? laid_out_mixture() : laid_out_dense();
      model.hidden_size = 32;
      model.vocabulary_size = 201;
      (model.mixture() ? model.expert_size : model.feed_forward_size) = 131;
      LayoutTrial plain = trial_of(model, {.stages = sizes.pipeline}, sizes);
      if (sizes.pipeline == 1) plain = trial_on(sizes, model);
      plain.size = {.sequences = 8, .context = 8};
      const std::vector<ShardAxes> triples = every_triple(plain.mesh);
      ASSERT_NE(triples.size() % kTurns, 0U) << "turns would come in the same order";
      for (const ShardAxes& axes : triples) {
        if (++turn % kTurns != 0) continue;
        SCOPED_TRACE(fmt::format("{}: {}, turn {}", plain.mesh.text(), text_of(axes), turn));
        LayoutTrial trial = with_options_of(plain, turn / kTurns);
        trial.shard.axes = axes;
        expect_model_of_one_rank(trial);
      }
    }
  }
}

/// ZeRO-1, 2 and 3, nested placements, and a second copy.
std::vector<ShardAxes> some_placements(const Mesh& mesh) {
  const int all = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1;
  return {{0, 0, all},
          {0, all, all},
          {all, all, all},
          {2, 2, 2},
          {2, 2, all},
          {0, 2, all},
          {.weights = all, .gradients = all, .optimizer = all, .secondary = 2}};
}

/// ZeRO-2, and pieces of weights over fewer ranks than those of the optimizer, with a second copy.
std::vector<ShardAxes> few_placements(const Mesh& mesh) {
  const int all = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1;
  return {{0, all, all}, {.weights = 2, .gradients = 2, .optimizer = all, .secondary = all}};
}

TEST(Sharding, GoesWithEachOtherAxis) {
  for (const bool mixture : {false, true}) {
    for (const MeshSizes& sizes :
         {MeshSizes{.tensor = 2, .data = {2, 2}}, MeshSizes{.context = 2, .data = {2}},
          MeshSizes{.tensor = 2, .context = 2, .data = {2}}, MeshSizes{.data = {2, 2}, .expert = 2},
          MeshSizes{.tensor = 2, .data = {2, 2}, .expert = 4},
          MeshSizes{.context = 2, .data = {2, 2}, .expert = 8}}) {
      if (sizes.expert > 1 && !mixture) continue;
      LayoutTrial trial = trial_on(sizes, mixture ? laid_out_mixture() : laid_out_dense());
      for (const ShardAxes& axes : some_placements(trial.mesh)) {
        SCOPED_TRACE(fmt::format("{}: {}", trial.mesh.text(), text_of(axes)));
        trial.shard.axes = axes;
        expect_model_of_one_rank(trial);
      }
    }
  }
}

/// Units of which cuts go through a parameter, and a table that two chunks share.
TEST(Sharding, CutsLargeParametersAndTiedHeads) {
  ModelConfig model = laid_out_dense();
  model.hidden_size = 64;
  model.feed_forward_size = 200;
  model.vocabulary_size = 301;
  model.tied_head = true;
  LayoutTrial trial = trial_on({.tensor = 2, .data = {2, 2}}, model);
  for (const ShardAxes& axes : few_placements(trial.mesh)) {
    for (const bool again : {true, false}) {
      for (const Recompute& recompute :
           {Recompute{}, Recompute{.norm = true, .attention = true, .experts = true},
            Recompute{.layer = true}}) {
        SCOPED_TRACE(text_of(axes));
        trial.shard.axes = axes;
        trial.shard.unit_options.gathers_again = again;
        trial.recompute = recompute;
        expect_model_of_one_rank(trial);
      }
    }
  }
}

TEST(Sharding, GoesWithEverySchedule) {
  using enum ScheduleKind;
  for (ModelConfig model : {laid_out_mixture()}) {
    model.layers = 4;
    model.tied_head = true;
    for (const PipelineCut& cut :
         {PipelineCut{.kind = all_forward_all_backward, .stages = 2, .micro_batches = 3},
          PipelineCut{.kind = one_forward_one_backward, .stages = 2, .micro_batches = 3},
          PipelineCut{.kind = interleaved, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4},
          PipelineCut{.kind = zero_bubble_h1, .stages = 2, .micro_batches = 3},
          PipelineCut{
              .kind = zero_bubble_v, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4},
          PipelineCut{
              .kind = dualpipe_v, .stages = 2, .chunks_per_stage = 2, .micro_batches = 5}}) {
      LayoutTrial trial = trial_of(model, cut, {.data = {2, 2}});
      for (const ShardAxes& axes : few_placements(trial.mesh)) {
        SCOPED_TRACE(cut.text() + ", " + text_of(axes));
        trial.shard.axes = axes;
        expect_model_of_one_rank(trial);
      }
    }
  }
}

/// Muon's matrices are whole on their owners, but their weights are cut.
TEST(Sharding, GoesWithMuon) {
  for (ModelConfig model : {laid_out_dense(), laid_out_mixture()}) {
    model.hidden_size = 80;
    for (const MeshSizes& sizes :
         {MeshSizes{.data = {2, 2}}, MeshSizes{.tensor = 2, .data = {2, 2}},
          MeshSizes{.pipeline = 2, .data = {2, 2}}, MeshSizes{.data = {2, 2}, .expert = 2}}) {
      if (sizes.expert > 1 && !model.mixture()) continue;
      LayoutTrial trial = trial_of(model, {.stages = sizes.pipeline}, sizes);
      if (sizes.pipeline == 1) trial = trial_on(sizes, model);
      trial.optimizer.name = OptimizerName::muon;
      for (const ShardAxes& axes : few_placements(trial.mesh)) {
        SCOPED_TRACE(fmt::format("{}: {}", trial.mesh.text(), text_of(axes)));
        trial.shard.axes = axes;
        expect_model_of_one_rank(trial);
      }
      // Masters of bf16 weights.
      trial.shard.axes = {2, 2, static_cast<int>(sizes.data.size()) + 1};
      const LayoutTrial rounded = [&] {
        LayoutTrial result = trial;
        result.compute = DType::bf16;
        return result;
      }();
      const Verification found = verify(rounded, 1);
      EXPECT_TRUE(found.passed()) << verification_text(found);
    }
  }
}

/// The published schemes of quantised communication on 2 nodes of 2 pairs of 2 ranks.
LayoutTrial quantised_trial(const ShardAxes& axes, const CutUnitOptions& options) {
  ModelConfig model = laid_out_dense();
  model.hidden_size = 64;
  model.feed_forward_size = 192;
  model.vocabulary_size = 256;
  LayoutTrial trial = trial_on({.data = {2, 2, 2}}, model);
  trial.compute = DType::f32;
  trial.shard = {.axes = axes, .unit_options = options};
  return trial;
}

const ShardAxes kZeroPlusPlus{.weights = 4, .gradients = 4, .optimizer = 4, .secondary = 3};
const ShardAxes kZeroTopo{.weights = 2, .gradients = 3, .optimizer = 4, .secondary = 3};
const CutUnitOptions kQuantised{.weights_wire = {WireFormat::int8, 64},
                                .secondary_wire = {WireFormat::int8, 64},
                                .gradients_wire = {WireFormat::int4, 64}};

TEST(Sharding, OfQuantisedNumbersTrainsNearlyTheModelOfOneRank) {
  for (const ShardAxes& axes : {kZeroPlusPlus, kZeroTopo}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(text_of(axes));
      LayoutTrial trial = quantised_trial(axes, kQuantised);
      trial.compute = compute;
      const TrialBatches batches{.whole = testing::random_batches(trial.size, 256, 4, 2, 7),
                                 .parts = {}};
      LayoutTrial one_rank = trial;
      one_rank.mesh = Mesh();
      one_rank.shard = {};
      const LayoutResults expected = run_layout(one_rank, batches);
      const LayoutResults found = run_layout(trial, batches);
      for (size_t i = 0; i < expected.steps.size(); ++i) {
        const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
        EXPECT_NEAR(b.cross_entropy / a.cross_entropy, 1, 0.01);
        EXPECT_NE(b.cross_entropy, a.cross_entropy);
        EXPECT_NEAR(b.gradient_norm / a.gradient_norm, 1, 0.1);
      }
    }
  }
}

/// Such a layout is another model. A format in which nothing travels is not.
TEST(Sharding, IsVerifiedUnlessRoundedNumbersTravel) {
  LayoutTrial trial = trial_on({.data = {2, 2}}, laid_out_dense());
  trial.shard.unit_options = kQuantised;
  const auto refusal = [&] { return error_of([&] { verify(trial, 1, {}); }); };
  EXPECT_THAT(refusal(), ::testing::HasSubstr("shard.gradients_wire is \"int4\""));
  trial.shard.unit_options.gradients_wire = {};
  EXPECT_TRUE(verify(trial, 1, {}).same());
  trial.shard.axes = {.weights = 2, .gradients = 2, .optimizer = 3, .secondary = 2};
  EXPECT_THAT(refusal(), ::testing::HasSubstr("shard.weights_wire is \"int8\""));
  trial.shard.unit_options.weights_wire = {};
  EXPECT_THAT(refusal(), ::testing::HasSubstr("shard.secondary_wire is \"int8\""));
  trial.shard.unit_options.gathers_again = false;
  EXPECT_TRUE(verify(trial, 1, {}).same());
  trial.shard = {.axes = {}, .unit_options = kQuantised};
  trial.mesh = Mesh({.tensor = 2});
  EXPECT_TRUE(verify(trial, 1, {}).same());
}

/// Copies as the weights are stored change no bit.
TEST(Sharding, OfSecondCopiesHasTheBitsOfPrimaryGathers) {
  LayoutTrial trial = quantised_trial(kZeroPlusPlus, {});
  const TrialBatches batches{.whole = testing::random_batches(trial.size, 256, 2, 2, 7),
                             .parts = {}};
  const LayoutResults copies = run_layout(trial, batches);
  trial.shard.axes.secondary = 0;
  EXPECT_EQ(first_different_bits(run_layout(trial, batches), copies), std::nullopt);
}

/// A gather that does not write its second copy leaves that of the step before.
TEST(Sharding, RefusesAStaleSecondCopyByName) {
  LayoutTrial trial = quantised_trial(kZeroTopo, kQuantised);
  trial.change = [](StepPrograms& programs) {
    for (Chunk& chunk : programs.chunks()) {
      testing::run_by(testing::nodes_of(chunk.program, "gather_units"),
                      [](const Operation& gather, const Execution& execution) {
                        const Tensor& version = execution.inputs.back();
                        const int32_t copied = version.data<int32_t>()[0];
                        gather.run(execution);
                        if (copied > 0) version.data<int32_t>()[0] = copied;
                      });
    }
  };
  const TrialBatches batches{.whole = testing::random_batches(trial.size, 256, 2, 2, 7),
                             .parts = {}};
  try {
    run_layout(trial, batches);
    ADD_FAILURE() << "a stale copy was used";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("second copy of the weights of"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("of version 1"));
  }
}

/// Each group of experts' ranks keeps a copy of the states outside the experts.
TEST(Sharding, GoesWithoutTakingExpertsIntoAccount) {
  for (const MeshSizes& sizes : {MeshSizes{.data = {2, 2}, .expert = 2},
                                 MeshSizes{.context = 2, .data = {2}, .expert = 2}}) {
    LayoutTrial trial = trial_on(sizes, laid_out_mixture());
    const int all = static_cast<int>(sizes.data.size()) + 1;
    trial.shard.axes = {.optimizer = all, .outside_experts = all - 1};
    expect_model_of_one_rank(trial);
    trial.optimizer.name = OptimizerName::muon;
    expect_model_of_one_rank(trial);
  }
}

/// All ranks of a sum exchange at once.
TEST(Sharding, SumsInOneHop) {
  LayoutTrial trial = trial_on({.data = {2, 2}}, laid_out_dense());
  for (const ShardAxes& axes : some_placements(trial.mesh)) {
    trial.shard.axes = axes;
    trial.shard.unit_options.gradients_wire.by_level = false;
    expect_model_of_one_rank(trial);
  }
}

class ShardingOfFamily : public ::testing::TestWithParam<Family> {};

TEST_P(ShardingOfFamily, TrainsTheModelOfOneRank) {
  LayoutTrial trial = trial_on({.data = {2, 2}}, testing::small_family(GetParam()));
  for (const ShardAxes& axes : some_placements(trial.mesh)) {
    SCOPED_TRACE(text_of(axes));
    trial.shard.axes = axes;
    expect_model_of_one_rank(trial);
  }
}

INSTANTIATE_TEST_SUITE_P(Sharding, ShardingOfFamily, ::testing::ValuesIn(testing::every_family()),
                         testing::name_of_family);

}  // namespace
}  // namespace tessera
