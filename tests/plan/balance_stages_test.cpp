#include "plan/balance_stages.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "plan/programs.h"
#include "plan/step_plan.h"
#include "support/small_family.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Counts = std::vector<int64_t>;

/// A dense model of 16 layers, whose step has 16 sequences.
RunConfig sixteen_layers(std::vector<std::string> keys, int vocabulary = 32) {
  keys.emplace_back("parallel.stage_layers=balanced");
  return parse_config(
      fmt::format("[model]\nfamily = 'llama'\nlayers = 16\nhidden_size = 32\nheads = 4\n"
                  "kv_heads = 4\nfeed_forward_size = 48\nvocabulary_size = {}\n"
                  "[data]\ncontext = 16\n[train]\nmicro_batch = 1\nglobal_batch = 16\n",
                  vocabulary),
      "test", keys);
}

Counts balanced(const RunConfig& config, int ranks) {
  return with_stage_layers(config, mesh_of(config, ranks)).parallel.stage_layers.counts;
}

/// Returns the costs of stages that all compute in the same way.
std::vector<ModelCosts> alike(const ModelCosts& costs, int stages) {
  return std::vector(static_cast<size_t>(stages), costs);
}

/// Returns the FLOPs and the memory of the worst stage, by a sum over each stage's layers.
struct Worst {
  double flops = 0;
  double bytes = 0;
};
Worst worst_stage(const Counts& counts, const std::vector<ModelCosts>& costs_of_stages,
                  const ChunkPlacement& placement, const std::vector<int>& in_flight) {
  Worst worst;
  for (int stage = 0; stage < placement.ranks; ++stage) {
    const ModelCosts& costs = costs_of_stages[static_cast<size_t>(stage)];
    std::vector<PartCost> parts;
    size_t layer = 0;
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const bool here = placement.rank(chunk) == stage;
      if (here && chunk == 0) parts.push_back(costs.embedding);
      for (int64_t i = 0; i < counts[static_cast<size_t>(chunk)]; ++i, ++layer) {
        if (here) parts.push_back(costs.layers[layer]);
      }
      if (here && chunk + 1 == placement.chunks()) parts.push_back(costs.head);
    }
    double flops = 0, states = 0, activations = 0;
    for (const PartCost& part : parts) {
      flops += part.flops;
      states += static_cast<double>(part.state_bytes);
      activations += static_cast<double>(part.activation_bytes);
    }
    const double peak = in_flight[static_cast<size_t>(stage)];
    const double chunks = placement.chunks() / placement.ranks;
    worst.flops = std::max(worst.flops, flops);
    worst.bytes = std::max(worst.bytes, states + activations * peak / chunks);
  }
  return worst;
}

/// Calls `visit` with all numbers of layers that chunks may have.
void for_all_counts(int64_t layers, int chunks, const std::function<void(const Counts&)>& visit,
                    Counts counts = {}) {
  const bool is_end = counts.empty() || std::ssize(counts) + 1 == chunks;
  if (std::ssize(counts) + 1 == chunks) {
    counts.push_back(layers);
    visit(counts);
    return;
  }
  for (int64_t count = is_end ? 0 : 1; count <= layers; ++count) {
    Counts next = counts;
    next.push_back(count);
    for_all_counts(layers - count, chunks, visit, next);
  }
}

/// Costs of equal layers. FLOPs are whole multiples of one unit, bytes small numbers.
ModelCosts any_equal_layers(int64_t layers) {
  const auto part = [](int most_flops) {
    return PartCost{.flops = static_cast<double>(*rc::gen::inRange(0, most_flops)),
                    .state_bytes = *rc::gen::inRange<int64_t>(0, 64) * 4,
                    .activation_bytes = *rc::gen::inRange<int64_t>(0, 16) * 4};
  };
  ModelCosts costs{.embedding = part(8), .layers = {}, .head = part(24)};
  PartCost layer = part(8);
  layer.flops += 1;
  costs.layers.assign(static_cast<size_t>(layers), layer);
  return costs;
}

/// The layers of a stage are equal. On another stage, which recomputes or not, they may cost more.
RC_GTEST_PROP(BalanceStages, FindTheBestNumbersOfEqualLayers, ()) {
  const bool v = *rc::gen::arbitrary<bool>();
  const int stages = *rc::gen::inRange(1, 4);
  const ChunkPlacement placement =
      v ? v_placement(stages) : loop_placement(stages, *rc::gen::inRange(1, 3));
  if (placement.chunks() < 2) return;
  const int64_t layers = *rc::gen::inRange<int64_t>(std::max(1, placement.chunks() - 2), 10);
  const bool are_alike = *rc::gen::arbitrary<bool>();
  std::vector<ModelCosts> costs = alike(any_equal_layers(layers), stages);
  std::vector<int> in_flight;
  for (int i = 0; i < stages; ++i) {
    if (!are_alike) costs[static_cast<size_t>(i)] = any_equal_layers(layers);
    in_flight.push_back(*rc::gen::inRange(1, 9));
  }

  const Counts found = balance_layers(costs, placement, in_flight);
  RC_ASSERT(std::accumulate(found.begin(), found.end(), int64_t{0}) == layers);
  RC_ASSERT(found == balance_layers(costs, placement, in_flight));
  const Worst of_found = worst_stage(found, costs, placement, in_flight);
  constexpr double kRounding = 1e-9;
  for_all_counts(layers, placement.chunks(), [&](const Counts& counts) {
    const Worst other = worst_stage(counts, costs, placement, in_flight);
    RC_ASSERT(other.flops >= of_found.flops * (1 - kRounding));
    if (other.flops <= of_found.flops * (1 + kRounding)) {
      RC_ASSERT(std::floor(other.bytes) + 1 >= std::floor(of_found.bytes));
    }
  });
}

RC_GTEST_PROP(BalanceStages, AreNeverWorseThanEvenNumbers, ()) {
  const int stages = *rc::gen::inRange(2, 6);
  const ChunkPlacement placement = loop_placement(stages, *rc::gen::inRange(1, 4));
  const int64_t layers = placement.chunks() + *rc::gen::inRange<int64_t>(0, 20);
  std::vector<ModelCosts> costs;
  for (int i = 0; i < stages; ++i) {
    costs.push_back(any_equal_layers(layers));
    for (PartCost& layer : costs.back().layers) layer.flops = *rc::gen::inRange(1, 30);
  }
  const std::vector<int> in_flight(static_cast<size_t>(stages), 2);
  const Counts found = balance_layers(costs, placement, in_flight);
  RC_ASSERT(std::accumulate(found.begin(), found.end(), int64_t{0}) == layers);
  for (size_t i = 1; i + 1 < found.size(); ++i) RC_ASSERT(found[i] >= 1);
  RC_ASSERT(std::ranges::min(found) >= 0);
  const Counts even = even_layers(layers, placement.chunks());
  RC_ASSERT(worst_stage(found, costs, placement, in_flight).flops <=
            worst_stage(even, costs, placement, in_flight).flops * (1 + 1e-9));
}

TEST(BalanceStages, GiveTheLastStageFewerLayersTheLargerTheVocabularyIs) {
  const Counts small = balanced(sixteen_layers({"parallel.pipeline=4"}, 32), 4);
  const Counts large = balanced(sixteen_layers({"parallel.pipeline=4"}, 600), 4);
  EXPECT_LT(large.back(), small.back());
  EXPECT_EQ(std::accumulate(large.begin(), large.end(), int64_t{0}), 16);
  const Counts huge = balanced(sixteen_layers({"parallel.pipeline=4"}, 20000), 4);
  EXPECT_EQ(huge.back(), 0) << "the head alone";
}

/// Ends that cost next to nothing leave all stages alike.
TEST(BalanceStages, AreEqualIfTheEndsAreNegligible) {
  ModelCosts costs;
  costs.layers.assign(16, {.flops = 1e12, .state_bytes = 1000, .activation_bytes = 100});
  costs.embedding = costs.head = {.flops = 1, .state_bytes = 1, .activation_bytes = 1};
  EXPECT_THAT(balance_layers(alike(costs, 4), loop_placement(4, 1), std::vector{4, 3, 2, 1}),
              ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(balance_layers(alike(costs, 4), loop_placement(4, 2), std::vector{11, 9, 7, 5}),
              ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
}

/// A first dense layer that costs as much as three others takes their place.
TEST(BalanceStages, CountLayersThatDiffer) {
  ModelCosts costs;
  costs.layers.assign(10, {.flops = 10});
  costs.layers.front().flops = 30;
  EXPECT_THAT(balance_layers(alike(costs, 4), loop_placement(4, 1), std::vector{4, 3, 2, 1}),
              ElementsAre(1, 3, 3, 3));
}

/// Of the numbers with equal FLOPs of the largest stage, those with the least memory: the first
/// stage, which has the most micro-batches in flight, has fewer layers.
TEST(BalanceStages, SpareTheMemoryOfTheFirstStage) {
  ModelCosts costs;
  costs.layers.assign(14, {.flops = 1, .state_bytes = 10, .activation_bytes = 10});
  costs.head.flops = 1;
  EXPECT_THAT(balance_layers(alike(costs, 4), loop_placement(4, 1), std::vector{4, 3, 2, 1}),
              ElementsAre(3, 4, 4, 3));
}

/// Llama 3, section 3.1.2: one layer fewer on the first and the last of 16 stages.
TEST(BalanceStages, GiveTheEndsOfLlama3OneLayerFewer) {
  const std::vector<std::string> keys{"parallel.tensor=8", "parallel.pipeline=16",
                                      "parallel.stage_layers=balanced"};
  const RunConfig config =
      load_config(std::string(TESSERA_SOURCE) + "/configs/llama-3-405b.toml", keys);
  const Counts counts = balanced(config, 16384);
  EXPECT_EQ(counts.front(), 7);
  EXPECT_EQ(counts.back(), 7);
  EXPECT_THAT(Counts(counts.begin() + 1, counts.end() - 1), ::testing::Each(8));
}

/// Returns the most FLOPs of a stage, repeated ones included, in the programs of these numbers of
/// layers.
double most_flops(RunConfig config, const Mesh& mesh, const Counts& counts) {
  config.parallel.stage_layers = {.counts = counts};
  double most = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    double flops = 0;
    for (const Chunk& chunk :
         write_passes(passes_to_write(config, {mesh, rank}), {mesh, rank}).chunks) {
      const FlopCount count = count_flops(chunk.program);
      flops += count.useful() + count.repeated;
    }
    most = std::max(most, flops);
  }
  return most;
}

/// Whichever stages recompute, no other numbers of layers have fewer FLOPs on the largest stage.
TEST(BalanceStages, CountTheRecomputationOfTheStagesThatRecompute) {
  const auto recomputing = [](const std::string& stages) {
    return sixteen_layers(
        {"parallel.pipeline=2", "train.recompute=['layer']", "train.recompute_stages=" + stages});
  };
  for (const char* const stages : {"[0]", "[1]", "[0, 1]"}) {
    const RunConfig config = recomputing(stages);
    const Mesh mesh = mesh_of(config, 2);
    const double found = most_flops(config, mesh, balanced(config, 2));
    for_all_counts(16, 2, [&](const Counts& counts) {
      EXPECT_LE(found, most_flops(config, mesh, counts)) << stages << " " << counts.front();
    });
  }
  EXPECT_THAT(balanced(recomputing("[0]"), 2), ElementsAre(7, 9));
  EXPECT_THAT(balanced(recomputing("[1]"), 2), ElementsAre(9, 7));
  EXPECT_THAT(balanced(recomputing("[0, 1]"), 2), ElementsAre(8, 8));
}

void expect_costs_of_chunks(const RunConfig& config) {
  const Mesh mesh = mesh_of(config, 4);
  const std::vector<ModelCosts> costs_of_stages = stage_costs(config, mesh);
  const RunConfig cut = with_stage_layers(config, mesh);
  const Counts& counts = cut.parallel.stage_layers.counts;
  size_t layer = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const ModelCosts& costs = costs_of_stages[static_cast<size_t>(stage)];
    const StepPlan plan = plan_step(cut, {.threads = 1}, {mesh, stage});
    PartCost sum;
    const auto add = [&](const PartCost& part) {
      sum.flops += part.flops;
      sum.state_bytes += part.state_bytes;
      sum.activation_bytes += part.activation_bytes;
    };
    if (stage == 0) add(costs.embedding);
    for (int64_t i = 0; i < counts[static_cast<size_t>(stage)]; ++i) add(costs.layers[layer++]);
    if (stage == 3) add(costs.head);
    EXPECT_DOUBLE_EQ(sum.flops, plan.flops.useful() + plan.flops.repeated) << stage;
    const auto kept = static_cast<double>(plan.memory.kept_bytes);
    EXPECT_NEAR(static_cast<double>(sum.state_bytes), kept, 0.05 * kept) << stage;
    const auto saved = static_cast<double>(plan.memory.programs[0].saved_bytes);
    EXPECT_NEAR(static_cast<double>(sum.activation_bytes), saved, 0.1 * saved) << stage;
  }
  EXPECT_EQ(layer, 16U);
}

TEST(BalanceStages, CostsAreThoseOfTheChunks) {
  const std::string recompute = "train.recompute=['attention']";
  expect_costs_of_chunks(sixteen_layers({"parallel.pipeline=4", recompute}));
  expect_costs_of_chunks(
      sixteen_layers({"parallel.pipeline=4", recompute, "train.recompute_stages=[0, 2]"}));
}

/// Every rank has its stage's part of the same cut, in every phase, and every layer is given out.
TEST(BalanceStages, AreTheSameOnEveryRankAndInEveryPhase) {
  const RunConfig config =
      sixteen_layers({"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.tensor=2",
                      "optimizer.warmup_steps=0", "train.steps=4",
                      "train.phases=[{steps = 2}, {steps = 2, context = 64}]"},
                     600);
  const Mesh mesh = mesh_of(config, 4);
  const Counts counts = balanced(config, 4);
  EXPECT_LT(counts.back(), 4);
  std::vector<int> times(16);
  for (int rank = 0; rank < 4; ++rank) {
    const StepPrograms programs = step_programs(config, {mesh, rank});
    ASSERT_EQ(programs.sets.size(), 2U);
    for (const Passes& passes : programs.sets) {
      ASSERT_EQ(passes.chunks.size(), 2U);
      for (size_t i = 0; i < 2; ++i) {
        const size_t chunk = i * 2 + static_cast<size_t>(mesh.stage(rank));
        const auto first =
            std::accumulate(counts.begin(), counts.begin() + static_cast<long>(chunk), int64_t{0});
        std::vector<bool> has(16);
        for (const Node& node : passes.chunks[i].program.nodes()) {
          if (node.layer >= 0) has[static_cast<size_t>(node.layer)] = true;
        }
        for (int64_t layer = 0; layer < 16; ++layer) {
          const bool expected = layer >= first && layer < first + counts[chunk];
          EXPECT_EQ(has[static_cast<size_t>(layer)], expected) << rank << " " << layer;
          times[static_cast<size_t>(layer)] += expected ? 1 : 0;
        }
      }
    }
  }
  EXPECT_THAT(times, ::testing::Each(4)) << "two ranks of the tensor axis, two phases";
}

/// The forward pass and the weights of the chunks.
TEST(BalanceStages, CostsOfAnEvaluationAreThoseOfItsChunks) {
  RunConfig config = sixteen_layers({"parallel.pipeline=4"}, 600);
  config.parallel.stage_layers = {.counts = {1, 6, 6, 3}};
  const Mesh mesh = mesh_of(config, 4);
  const PassesToWrite passes = passes_to_write(config, {mesh, 0});
  const ModelCosts costs = evaluation_costs(passes, mesh);
  size_t layer = 0;
  for (int stage = 0; stage < 4; ++stage) {
    PartCost sum;
    const auto add = [&](const PartCost& part) {
      sum.flops += part.flops;
      sum.state_bytes += part.state_bytes;
      EXPECT_EQ(part.activation_bytes, 0) << "kept for a backward pass";
    };
    if (stage == 0) add(costs.embedding);
    const auto count = config.parallel.stage_layers.counts[static_cast<size_t>(stage)];
    for (int64_t i = 0; i < count; ++i) add(costs.layers[layer++]);
    if (stage == 3) add(costs.head);
    const EvaluationPasses written = write_evaluation_passes(passes, {mesh, stage});
    ASSERT_EQ(written.chunks.size(), 1U);
    const EvaluationProgram& chunk = written.chunks.front();
    const FlopCount flops = count_flops(chunk.program);
    EXPECT_GT(sum.flops, 0);
    EXPECT_DOUBLE_EQ(sum.flops, flops.useful() + flops.repeated) << stage;
    int64_t bytes = 0;
    for (const ParameterSpec& spec : chunk.parameters.specs()) {
      bytes += spec.shape.elements() * dtype_size(spec.dtype);
    }
    EXPECT_EQ(sum.state_bytes, bytes) << stage;
  }
  EXPECT_EQ(layer, 16U);
  const Counts counts = balance_layers(alike(costs, 4), passes.placement, std::vector{1, 1, 1, 1});
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 16);
  EXPECT_LT(counts.back(), 4) << "the head costs as much as some layers";
}

/// The merge of a scaled residual before the last norm is in no layer.
TEST(BalanceStages, CountTheLastMergeOfAScaledResidualWithTheHead) {
  RunConfig config = sixteen_layers({"parallel.pipeline=2"});
  config.model = testing::small_family(Family::zaya);
  config.model.layers = 5;
  const Mesh mesh = mesh_of(config, 2);
  const ModelCosts costs = stage_costs(config, mesh).front();
  ASSERT_EQ(costs.layers.size(), 5U);
  const PartCost& first = costs.layers[1];
  for (size_t layer = 2; layer < 5; ++layer) {
    EXPECT_EQ(costs.layers[layer].activation_bytes, first.activation_bytes) << layer;
  }
  config.model.residual_scaling = false;
  EXPECT_GT(costs.head.activation_bytes, stage_costs(config, mesh).front().head.activation_bytes);
  const Counts counts = balanced(config, 2);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 5);
}

TEST(BalanceStages, LeaveOtherConfigurationsAsTheyAre) {
  RunConfig config = sixteen_layers({"parallel.pipeline=4"});
  config.parallel.stage_layers = {.counts = {1, 5, 5, 5}};
  EXPECT_THAT(balanced(config, 4), ElementsAre(1, 5, 5, 5));
  config.parallel = {};
  EXPECT_TRUE(balanced(config, 4).empty());
}

}  // namespace
}  // namespace tessera
