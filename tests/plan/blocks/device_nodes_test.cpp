#include "plan/blocks/device_nodes.h"

#include <gtest/gtest.h>

#include "plan/blocks/block_measurement.h"
#include "plan/blocks/layer_blocks.h"

namespace tessera {
namespace {

std::vector<float> floats(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  return {host.values<float>().begin(), host.values<float>().end()};
}

/// The results of a block's passes: its floating outputs, then all main gradients.
std::vector<std::vector<float>> results(const BlockProgram& block, bool node_by_node) {
  Runtime runtime(block_target(1, Device::emulated));
  BlockRunner runner(block, runtime);
  std::vector<std::vector<float>> all;
  const auto take = [&](Value value) {
    if (block.program.spec(value).dtype == DType::f32) all.push_back(floats(runner[value]));
  };
  DeviceNodes nodes(runner.executor(), runtime);
  const auto run = [&](Segment segment) {
    if (!node_by_node) return segment == Segment::forward ? runner.forward() : runner.backward();
    EXPECT_GT(nodes.run(segment), 0);
    EXPECT_EQ(nodes.nodes().size(), nodes.seconds().size());
    double sum = 0;
    for (const double seconds : nodes.seconds()) {
      EXPECT_GE(seconds, 0);
      sum += seconds;
    }
    EXPECT_GT(sum, 0);
  };
  run(Segment::forward);
  for (const Value output : block.program.outputs()) take(output);
  run(Segment::backward);
  for (size_t id = 0; id < block.program.values().size(); ++id) {
    const Value value{static_cast<int>(id)};
    if (block.program.values()[id].kind != ValueKind::parameter) continue;
    if (const Value gradient = block.program.main_gradient(value)) take(gradient);
  }
  return all;
}

TEST(DeviceNodes, ComputeWhatTheExecutorComputes) {
  const MixtureBlockSizes sizes{
      .tokens = 12, .hidden = 16, .experts = 4, .experts_per_token = 2, .expert_size = 8};
  const BlockProgram block = mixture_block(sizes, DType::f32);
  const auto expected = results(block, false);
  ASSERT_GT(expected.size(), 3U);
  EXPECT_EQ(results(block, true), expected);
}

TEST(DeviceNodes, MeasureABlockWithTheCountsOfItsExperts) {
  const MixtureBlockSizes sizes{.tokens = 12,
                                .hidden = 16,
                                .experts = 4,
                                .experts_per_token = 2,
                                .expert_size = 8,
                                .uniform_routing = true};
  const BlockProgram block = mixture_block(sizes, DType::f32);
  Runtime runtime(block_target(1, Device::emulated));
  const BlockMeasurement measured =
      measure_block(block, runtime, {.warmup = 1, .measured = 2, .before = {}});
  EXPECT_EQ(measured.integer_outputs.at(0), std::vector<int32_t>(4, 6));
  EXPECT_EQ(measured.forward_seconds.size(), 2U);
}

}  // namespace
}  // namespace tessera
