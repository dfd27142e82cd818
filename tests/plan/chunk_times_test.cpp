#include "plan/chunk_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "engine/action.h"
#include "plan/programs.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The programs of a stage of a dense model in two stages.
StepPrograms stage_programs(int stage, const std::vector<std::string>& keys = {}) {
  std::vector<std::string> all{"parallel.pipeline=2"};
  all.insert(all.end(), keys.begin(), keys.end());
  const RunConfig config = parse_config(
      "[model]\nfamily = 'llama'\nlayers = 4\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
      "feed_forward_size = 48\nvocabulary_size = 64\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 1\nglobal_batch = 4\nprecision = 'fp32'\n",
      "test", all);
  return step_programs(config, {mesh_of(config, 2), stage});
}

double sum(const ChunkTimes& times) {
  return times.forward + times.input_gradients + times.weight_gradients;
}

/// The FLOPs of a linear layer's pass over the 16 tokens of a micro-batch.
double product(double inputs, double outputs) { return 2.0 * 16 * inputs * outputs; }

TEST(ChunkTimes, AreSumsOverTheNodesOfEachPass) {
  const StepPrograms programs = stage_programs(1);
  const Program& program = programs.chunks().front().program;
  const ChunkTimes nodes = chunk_times(program, [](const Node&) { return 1.0; });
  EXPECT_EQ(nodes.forward, segment_nodes(program, Segment::forward).size());
  EXPECT_EQ(nodes.of(ActionKind::backward), segment_nodes(program, Segment::backward).size());
  EXPECT_GT(nodes.weight_gradients, 0);
}

TEST(ChunkTimes, FlopsHaveTheHeadsGradientInTheForwardPass) {
  const ChunkTimes first = chunk_flops(stage_programs(0).chunks().front().program);
  const ChunkTimes last = chunk_flops(stage_programs(1).chunks().front().program);
  const double head = product(32, 64);
  EXPECT_DOUBLE_EQ(last.forward - first.forward, 3 * head) << "loss, and both gradients";
  EXPECT_DOUBLE_EQ(sum(last) - sum(first), 3 * head);
  // The weight gradients of two layers: query and output, key and value, and three of the
  // feed-forward layer.
  const double weights = 2 * (2 * product(32, 32) + 2 * product(32, 16) + 3 * product(32, 48));
  EXPECT_DOUBLE_EQ(last.weight_gradients, weights);
  EXPECT_EQ(first.input_gradients, 0) << "no chunk waits for them";
  EXPECT_DOUBLE_EQ(first.weight_gradients, last.weight_gradients + last.input_gradients);
}

TEST(ChunkTimes, FlopsHaveRepeatedWork) {
  const ChunkTimes once = chunk_flops(stage_programs(1).chunks().front().program);
  const ChunkTimes repeated =
      chunk_flops(stage_programs(1, {"train.recompute=['layer']"}).chunks().front().program);
  EXPECT_EQ(repeated.forward, once.forward);
  EXPECT_GT(sum(repeated), sum(once));
}

TEST(ChunkTimes, AreSharedOutToNodesByFlops) {
  const StepPrograms programs = stage_programs(1);
  const Program& program = programs.chunks().front().program;
  const ChunkTimes times{.forward = 5, .input_gradients = 3, .weight_gradients = 2};
  const std::vector<double> nodes = node_times(program, times);
  const ChunkTimes again = chunk_times(program, [&](const Node& node) {
    return nodes[static_cast<size_t>(&node - program.nodes().data())];
  });
  EXPECT_NEAR(again.forward, 5, 1e-9);
  EXPECT_NEAR(again.input_gradients, 3, 1e-9);
  EXPECT_NEAR(again.weight_gradients, 2, 1e-9);
  const double forward_flops = chunk_flops(program).forward;
  for (const int node : segment_nodes(program, Segment::forward)) {
    const auto index = static_cast<size_t>(node);
    EXPECT_NEAR(nodes[index], 5 * node_flops(program, program.nodes()[index]) / forward_flops,
                1e-12);
  }
}

TEST(ChunkTimes, AreSharedOutEvenlyWithoutFlops) {
  // The first chunk has no layer, only the embedding.
  const StepPrograms programs = stage_programs(0, {"parallel.stage_layers=[0, 4]"});
  const Program& program = programs.chunks().front().program;
  ASSERT_EQ(sum(chunk_flops(program)), 0);
  const std::vector<double> nodes = node_times(program, {1, 1, 1});
  const std::vector<int> forward = segment_nodes(program, Segment::forward);
  ASSERT_FALSE(forward.empty());
  for (const int node : forward) {
    EXPECT_DOUBLE_EQ(nodes[static_cast<size_t>(node)], 1.0 / static_cast<double>(forward.size()));
  }
}

TEST(ChunkTimes, AreReadFromAFile) {
  const std::vector<ChunkTimes> times = parse_chunk_times(
      R"({"forward": [0.5, 1], "input_gradients": 2, "weight_gradients": [0, 3]})", "times", 2);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].forward, 0.5);
  EXPECT_EQ(times[1].forward, 1);
  EXPECT_EQ(times[0].of(ActionKind::backward), 2);
  EXPECT_EQ(times[1].of(ActionKind::backward), 5);
}

TEST(ChunkTimes, AWrongFileIsRefusedByItsMember) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { parse_chunk_times(text, "times.json", 2); });
  };
  EXPECT_THAT(refusal(R"({"forward": 1, "input_gradients": 1})"),
              AllOf(HasSubstr("times.json"), HasSubstr("weight_gradients")));
  EXPECT_THAT(
      refusal(R"({"forward": 1, "input_gradients": 1, "weight_gradients": 1, "latency": 1})"),
      HasSubstr("latency"));
  const auto with_forward = [&](const std::string& forward) {
    return refusal(
        fmt::format(R"({{"forward": {}, "input_gradients": 1, "weight_gradients": 1}})", forward));
  };
  for (const char* wrong :
       {"-1", "[1, -1]", "[1]", "[1, 1, 1]", "[]", "\"1\"", "3601", "null", "[1, {}]", "1e999"}) {
    EXPECT_THAT(with_forward(wrong), HasSubstr("times.json")) << wrong;
  }
  EXPECT_THAT(with_forward("[1, 2, 3]"),
              AllOf(HasSubstr("forward"), HasSubstr("an array with one for each of the 2")));
}

}  // namespace
}  // namespace tessera
