#include "plan/blocks/block_measurement.h"

#include <gtest/gtest.h>

#include "plan/blocks/layer_blocks.h"

namespace tessera {
namespace {

TEST(BlockMeasurement, OnADeviceHasTheCountsOfTheExperts) {
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
  ASSERT_EQ(measured.forward_seconds.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GT(measured.forward_seconds[i], 0);
    EXPECT_GT(measured.forward_backward_seconds[i], measured.forward_seconds[i]);
  }
}

}  // namespace
}  // namespace tessera
