#include "plan/explain_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "plan/explain.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

/// A dense model of 8 layers, whose step has 8 sequences.
RunConfig eight_layers(const std::vector<std::string>& keys = {}) {
  return parse_config(
      "[model]\nfamily = 'llama'\nlayers = 8\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
      "feed_forward_size = 48\nvocabulary_size = 256\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 1\nglobal_batch = 8\nprecision = 'fp32'\n",
      "test", keys);
}

StepPlan stage_plan(const RunConfig& config, int ranks, int rank = 0) {
  return plan_step(config, {.threads = 1}, {mesh_of(config, ranks), rank});
}

std::optional<StagesAccount> stages_of(const RunConfig& config, int ranks) {
  return stages_account(config, mesh_of(config, ranks),
                        [&](int rank) { return stage_plan(config, ranks, rank); });
}

TEST(ExplainStages, AreThePlansOfARankOfEachStage) {
  const RunConfig config = eight_layers({"parallel.pipeline=4"});
  const StagesAccount account = stages_of(config, 4).value();
  const StepPlan whole = stage_plan(eight_layers(), 1);
  int64_t parameters = 0;
  double flops = 0, share = 0;
  ASSERT_EQ(account.stages.size(), 4U);
  for (int stage = 0; stage < 4; ++stage) {
    const StageAccount& found = account.stages[static_cast<size_t>(stage)];
    const StepPlan plan = stage_plan(config, 4, stage);
    EXPECT_EQ(found.rank, stage);
    EXPECT_THAT(found.chunks, ElementsAre(stage));
    EXPECT_EQ(found.peak_bytes, plan.memory.arena_bytes);
    EXPECT_EQ(found.state_bytes, plan.memory.kept_bytes);
    // 1F1B: the earlier the stage, the more micro-batches are in flight.
    EXPECT_EQ(found.in_flight, 4 - stage);
    EXPECT_EQ(found.activation_bytes, (4 - stage) * plan.memory.programs[0].saved_bytes);
    parameters += found.parameters;
    flops += found.step_flops;
    share += found.share;
  }
  EXPECT_EQ(parameters, whole.parameters);
  EXPECT_DOUBLE_EQ(flops, whole.flops.useful() * 8);
  EXPECT_DOUBLE_EQ(share, 1);
  EXPECT_GT(account.stages[3].share, account.stages[2].share) << "the head";
  EXPECT_GT(account.stages[0].parameters, account.stages[1].parameters) << "the embedding";
}

TEST(ExplainStages, TakesTheBubbleForEqualTimesAndForTheirOwn) {
  const RunConfig config = eight_layers({"parallel.pipeline=4"});
  const StagesAccount account = stages_of(config, 4).value();
  EXPECT_DOUBLE_EQ(account.equal_times.bubble, 3.0 / 8);
  ScheduleTimes times{.chunks = {}};
  for (int stage = 0; stage < 4; ++stage) {
    const StepPlan plan = stage_plan(config, 4, stage);
    const Program& program = plan.programs.chunks().front().program;
    ChunkTimes& chunk = times.chunks.emplace_back(ChunkTimes{0, 0, 0});
    for (const Node& node : program.nodes()) {
      const Cost cost = node_cost(program, node);
      (node.phase == Phase::forward ? chunk.forward : chunk.input_gradients) +=
          cost.flops + cost.repeated_flops;
    }
  }
  EXPECT_GT(times.chunks[3].forward, times.chunks[3].input_gradients / 2)
      << "the forward pass has the head's gradient";
  EXPECT_NEAR(account.flops_as_times.bubble, measure(account.schedule, times).bubble, 1e-12);
  EXPECT_GT(account.flops_as_times.bubble, account.equal_times.bubble) << "the others wait for it";
}

TEST(ExplainStages, CountRecomputedWorkAsTime) {
  const std::vector<std::string> last_is_short{"parallel.pipeline=2",
                                               "parallel.stage_layers=[7,1]"};
  std::vector<std::string> recomputing = last_is_short;
  recomputing.emplace_back("train.recompute=['layer']");
  const StagesAccount saving = stages_of(eight_layers(last_is_short), 2).value();
  const StagesAccount repeating = stages_of(eight_layers(recomputing), 2).value();
  EXPECT_EQ(repeating.stages[0].step_flops, saving.stages[0].step_flops) << "of the model";
  EXPECT_GT(repeating.flops_as_times.bubble, saving.flops_as_times.bubble);
}

TEST(ExplainStages, HaveARankOfEachStageAndItsChunks) {
  const RunConfig config =
      eight_layers({"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.tensor=2"});
  const StagesAccount account = stages_of(config, 4).value();
  ASSERT_EQ(account.stages.size(), 2U);
  EXPECT_EQ(account.stages[1].rank, 2) << "tensor is the inner axis";
  EXPECT_THAT(account.stages[0].chunks, ElementsAre(0, 2));
  EXPECT_THAT(account.stages[1].chunks, ElementsAre(1, 3));
  EXPECT_EQ(account.stages[0].in_flight, 2.5);  // 5 chunks of half a stage
  EXPECT_EQ(account.stages[1].in_flight, 1.5);
  const StepPlan plan = stage_plan(config, 4, 0);
  const int64_t first = plan.memory.programs[0].saved_bytes;
  const int64_t second = plan.memory.programs[1].saved_bytes;
  ASSERT_GT(first, second) << "tokens";
  EXPECT_EQ(account.stages[0].activation_bytes, 4 * first + second) << "F0 F0 F2 F2 F0 B2 F0";
  EXPECT_THAT(stages_table(account),
              AllOf(HasSubstr("embedding, layers 0 to 1; layers 4 to 5"),
                    HasSubstr("layers 2 to 3; layers 6 to 7, head"),
                    HasSubstr("schedule interleaved, 8 micro-batches: bubble 6.2 % if all chunks "
                              "take the same time")));
}

TEST(ExplainStages, NameWhatTakesMostOfTheMemory) {
  EXPECT_EQ((StageAccount{.peak_bytes = 10, .state_bytes = 6, .activation_bytes = 2}).limit(),
            "states");
  EXPECT_EQ((StageAccount{.peak_bytes = 10, .state_bytes = 2, .activation_bytes = 5}).limit(),
            "activations");
  EXPECT_EQ((StageAccount{.peak_bytes = 10, .state_bytes = 2, .activation_bytes = 2}).limit(),
            "one pass");
  const StagesAccount account =
      stages_of(eight_layers({"parallel.pipeline=4", "data.context=512"}), 4).value();
  EXPECT_EQ(account.stages[0].limit(), "activations");
}

TEST(ExplainStages, AreInTheJsonOfAPipelineAlone) {
  const RunConfig config = eight_layers({"parallel.pipeline=2", "parallel.stage_layers=[8,0]"});
  const StagesAccount account = stages_of(config, 2).value();
  const StepPlan plan = stage_plan(config, 2);
  const Json json = Json::parse(explain_json(config, plan, nullptr, {}, &account))["pipeline"];
  EXPECT_EQ(json["schedule"]["name"], "1f1b");
  EXPECT_EQ(json["schedule"]["micro_batches"], 8);
  EXPECT_EQ(json["schedule"]["bubble"], 1.0 / 8);
  ASSERT_EQ(json["stages"].size(), 2U);
  EXPECT_EQ(json["stages"][0]["chunks"][0]["layers"], 8);
  EXPECT_EQ(json["stages"][1]["chunks"][0]["layers"], 0);
  EXPECT_EQ(json["stages"][1]["chunks"][0]["head"], true);
  EXPECT_EQ(json["stages"][0]["peak_bytes"], plan.memory.arena_bytes);
  EXPECT_FALSE(stages_of(eight_layers(), 1).has_value());
  EXPECT_FALSE(Json::parse(explain_json(eight_layers(), stage_plan(eight_layers(), 1)))
                   .contains("pipeline"));
}

}  // namespace
}  // namespace tessera
