#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/words.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "pipeline/generate.h"
#include "support/random_batches.h"
#include "support/shared_states.h"
#include "support/small_family.h"
#include "verify/layout_trials.h"
#include "verify/pipeline_trials.h"
#include "verify/verify.h"
#include "verify/verify_size.h"

namespace tessera {
namespace {

LayoutTrial one_rank(LayoutTrial trial) {
  trial.mesh = Mesh();
  return trial;
}

TrialBatches batches_of(const LayoutTrial& trial, int steps = 2) {
  return {.whole = testing::random_batches(trial.size, trial.model.vocabulary_size, steps,
                                           trial.micro_batches, 7),
          .parts = {}};
}

void expect_same_bits(const Tensor& expected, const Tensor& found, const std::string& name) {
  EXPECT_EQ(std::memcmp(expected.raw(), found.raw(), static_cast<size_t>(expected.bytes())), 0)
      << name;
}

/// Every stage computes what it has of the model as one rank does, and the sums over stages add
/// zeros: weights, losses and the norm have the bits of one rank that takes the micro-batches in
/// the same order.
void expect_bits_of_one_rank(const LayoutTrial& trial) {
  const TrialBatches batches = batches_of(trial);
  const LayoutResults expected = run_layout(one_rank(trial), batches);
  const LayoutResults found = run_layout(trial, batches);
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
    EXPECT_EQ(a.cross_entropy, b.cross_entropy);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
    EXPECT_EQ(expected.steps[i].expert_tokens, found.steps[i].expert_tokens);
    EXPECT_NEAR(b.balance, a.balance, 1e-6 * a.balance);  // layer by layer, then the stages' sums
    EXPECT_NEAR(b.router_z, a.router_z, 1e-6 * a.router_z);
  }
  for (const auto& [name, tensor] : expected.gradients.back()) {
    expect_same_bits(tensor, found.gradients.back().at(name), name);
  }
  for (const auto& [name, tensor] : expected.weights) {
    expect_same_bits(tensor, found.weights.at(name), name);
  }
}

/// Every schedule on 2 and 4 stages, in the numbers that it needs.
std::vector<PipelineCut> every_schedule() {
  using enum ScheduleKind;
  return {
      {.kind = all_forward_all_backward, .stages = 2, .micro_batches = 3},
      {.kind = all_forward_all_backward,
       .stages = 2,
       .chunks_per_stage = 2,
       .micro_batches = 4,
       .consecutive = 2},
      {.kind = one_forward_one_backward, .stages = 2, .micro_batches = 3},
      {.kind = one_forward_one_backward, .stages = 4, .micro_batches = 6},
      {.kind = interleaved, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4},
      {.kind = flexible, .stages = 2, .chunks_per_stage = 2, .micro_batches = 5},
      {.kind = flexible, .stages = 2, .chunks_per_stage = 2, .micro_batches = 3, .consecutive = 1},
      {.kind = zero_bubble_h1, .stages = 2, .micro_batches = 3},
      {.kind = zero_bubble_h1, .stages = 4, .micro_batches = 6},
      {.kind = zero_bubble_v, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4},
      {.kind = dualpipe_v, .stages = 2, .chunks_per_stage = 2, .micro_batches = 5}};
}

class PipelineOfFamily : public ::testing::TestWithParam<Family> {};

TEST_P(PipelineOfFamily, HasTheBitsOfOneRankWithEverySchedule) {
  ModelConfig model = testing::small_family(GetParam());
  model.layers = 4;
  if (model.tied_head) model.tied_head = false;
  for (const PipelineCut& cut : every_schedule()) {
    SCOPED_TRACE(cut.text());
    LayoutTrial trial = trial_of(model, cut);
    trial.compute = DType::bf16;
    expect_bits_of_one_rank(trial);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, PipelineOfFamily, ::testing::ValuesIn(testing::every_family()),
                         testing::name_of_family);

/// The first stage may have the embedding alone, the last one the head.
TEST(Pipeline, MayHaveStagesWithoutLayers) {
  ModelConfig model = laid_out_dense();
  model.layers = 3;
  for (const std::vector<int64_t>& layers :
       {std::vector<int64_t>{0, 3, 0}, std::vector<int64_t>{1, 2, 0},
        std::vector<int64_t>{0, 1, 2}}) {
    expect_bits_of_one_rank(trial_of(model, {.stages = 3, .micro_batches = 4, .layers = layers}));
  }
}

/// A large head takes the place of layers, and the cut trains like any other.
TEST(Pipeline, MayHaveBalancedStages) {
  const std::vector<std::string> keys{"parallel.pipeline=3", "parallel.stage_layers=balanced"};
  const RunConfig config = parse_config(
      "[model]\nfamily = 'llama'\nlayers = 6\nhidden_size = 16\nheads = 4\nkv_heads = 2\n"
      "feed_forward_size = 24\nvocabulary_size = 300\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 4\nglobal_batch = 16\nprecision = 'fp32'\n",
      "test", keys);
  const Mesh mesh = mesh_of(config, 3);
  const LayoutTrial trial = trial_of(config, mesh, {.micro_batch = 4, .context = 16});
  std::vector<int64_t> layers;
  for (const ChunkRange& range : trial.pipeline.ranges) {
    layers.push_back(range.layers.end - range.layers.first);
  }
  EXPECT_EQ(layers, (std::vector<int64_t>{3, 3, 0})) << "the head alone is as much as 4 layers";
  expect_bits_of_one_rank(trial);
}

/// Two stages have the table: its gradient is summed over them, and both update it alike.
TEST(Pipeline, MayHaveATiedHead) {
  for (ModelConfig model : {laid_out_dense(), laid_out_mixture()}) {
    model.layers = 4;
    model.tied_head = true;
    for (const PipelineCut& cut : every_schedule()) {
      SCOPED_TRACE(cut.text());
      const LayoutTrial trial = trial_of(model, cut);
      const TrialBatches batches = batches_of(trial);
      expect_same_model(run_layout(one_rank(trial), batches), run_layout(trial, batches));
    }
  }
}

/// Pipelines with recomputation of each block, Muon, states that ranks share out.
TEST(Pipeline, GoesWithRecomputationOptimizersAndSharedStates) {
  ModelConfig model = laid_out_mixture();
  model.layers = 4;
  for (const bool muon : {false, true}) {
    for (const bool shares_states : {false, true}) {
      LayoutTrial trial =
          trial_of(model, {.kind = ScheduleKind::zero_bubble_h1, .stages = 2, .micro_batches = 3},
                   {.data = {2}});
      trial.recompute = {.norm = true, .attention = true};
      if (shares_states) trial.shard.axes = testing::states_over_all(trial.mesh);
      if (muon) trial.optimizer.name = OptimizerName::muon;
      if (muon) trial.pipeline.recompute_stages = {0};
      const TrialBatches batches = batches_of(trial);
      expect_same_model(run_layout(one_rank(trial), batches), run_layout(trial, batches));
    }
  }
}

/// Every other axis with pipelines of 2 and 4 stages.
TEST(Pipeline, GoesWithEachOtherAxis) {
  for (const bool mixture : {false, true}) {
    ModelConfig model = mixture ? laid_out_mixture() : laid_out_dense();
    model.layers = 4;
    for (const MeshSizes& sizes : few_layouts(mixture)) {
      for (const int stages : {2, 4}) {
        const LayoutTrial trial = trial_of(model, {.stages = stages, .micro_batches = 5}, sizes);
        if (trial.mesh.ranks() > 32) continue;
        SCOPED_TRACE(trial.mesh.text());
        const TrialBatches batches = batches_of(trial);
        expect_same_model(run_layout(one_rank(trial), batches), run_layout(trial, batches));
      }
    }
  }
}

/// A loss over all layers, for every set of tokens, in every schedule, where ranks have their own
/// tokens. Each stage begins its sums with those of the stage before, rank by rank, so they have
/// the bits of the same ranks with the whole model.
TEST(Pipeline, PoolsTheBalanceOfAllChunks) {
  ModelConfig model = laid_out_mixture();
  model.layers = 4;
  model.balance_form = BalanceForm::pooled;
  model.balance_coefficient = 0.1;
  for (const BalanceTokens tokens :
       {BalanceTokens::rank, BalanceTokens::micro_batch, BalanceTokens::global_batch}) {
    model.balance_tokens = tokens;
    for (const PipelineCut& cut : every_schedule()) {
      SCOPED_TRACE(fmt::format("{}, {}", word(tokens), cut.text()));
      const LayoutTrial trial = trial_of(model, cut, {.data = {2}});
      LayoutTrial whole = trial;
      whole.mesh = Mesh({.data = {2}});
      whole.pipeline = {};
      const TrialBatches batches = batches_of(trial);
      const LayoutResults expected = run_layout(whole, batches);
      const LayoutResults found = run_layout(trial, batches);
      expect_same_model(expected, found);
      for (size_t i = 0; i < expected.steps.size(); ++i) {
        EXPECT_EQ(found.steps[i].results.balance, expected.steps[i].results.balance);
      }
      for (const auto& [name, tensor] : expected.gradients.back()) {
        expect_same_bits(tensor, found.gradients.back().at(name), name);
      }
    }
  }
}

/// The tokens of a micro-batch, of each rank or of all, over which an expert's capacity counts are
/// those of one rank.
TEST(Pipeline, DropsTheChoicesThatOneRankDrops) {
  ModelConfig model = laid_out_mixture();
  model.layers = 4;
  for (const TokenSet tokens : {TokenSet::rank, TokenSet::micro_batch}) {
    model.balance_tokens =
        tokens == TokenSet::rank ? BalanceTokens::rank : BalanceTokens::micro_batch;
    for (const ScheduleKind kind :
         {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble_v}) {
      const PipelineCut cut{
          .kind = kind, .chunks_per_stage = is_v(kind) ? 2 : 1, .micro_batches = 3};
      SCOPED_TRACE(fmt::format("{}, {}", word(tokens), cut.text()));
      LayoutTrial trial = trial_of(model, cut, {.data = {2}, .expert = 2});
      trial.experts.capacity_tokens = tokens;
      trial.model.capacity_factor = 1.1;
      const Verification found = verify(trial, 1);
      EXPECT_TRUE(found.passed()) << verification_text(found);
      const TrialBatches batches = batches_of(trial, 1);
      const LayoutResults dropping = run_layout(trial, batches);
      trial.model.capacity_factor = 0;
      EXPECT_NE(run_layout(trial, batches).steps[0].expert_tokens, dropping.steps[0].expert_tokens)
          << "nothing was dropped";
    }
  }
}

}  // namespace
}  // namespace tessera
