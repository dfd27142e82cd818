#include <algorithm>

#include <gtest/gtest.h>

#include "inference/evaluate.h"
#include "inference/generate.h"
#include "inference/multiple_choice/log_likelihood.h"
#include "ops/host_target.h"
#include "support/error_of.h"
#include "support/small_model.h"
#include "support/tested_devices.h"

namespace tessera {
namespace {

using testing::SmallModel;

TEST(DeviceInference, GeneratesWhatTheProcessorGenerates) {
  const GenerateOptions options{.tokens = 12, .stop_at_end = false, .sampling = {.temperature = 0}};
  for (const testing::Emulation& emulation : testing::every_device()) {
    SCOPED_TRACE(describe(emulation));
    Runtime device = testing::make_runtime(host_target(1), emulation);
    SmallModel small(257);
    const Generation expected = generate(small.model, "a long prompt", options, small.runtime);
    small.model.move_to(device);
    const Generation actual = generate(small.model, "a long prompt", options, device);
    ASSERT_EQ(expected.tokens.size(), 12U);
    ASSERT_EQ(actual.tokens.size(), 12U);
    const auto first_other = std::ranges::mismatch(actual.tokens, expected.tokens).in1;
    const auto equal = first_other - actual.tokens.begin();
    if (emulation.device == Device::emulated) {
      EXPECT_EQ(equal, 12);
    } else {  // two nearly equal logits may change places, and all tokens after them
      testing::print_figure("equal greedy tokens", static_cast<double>(equal), 12);
    }
  }
}

TEST(DeviceInference, ScoresLikeTheProcessor) {
  for (const testing::Emulation& emulation : testing::every_device()) {
    SCOPED_TRACE(describe(emulation));
    Runtime device = testing::make_runtime(host_target(1), emulation);
    SmallModel small(257);
    const std::vector<Continuation> continuations{{{1, 2, 3, 4, 5, 6}, 2}, {{9, 8, 7}, 1}};
    const auto score = [&](Runtime& runtime) {
      return log_likelihoods(small.model, continuations, 2, runtime, nullptr);
    };
    const std::vector<double> expected = score(small.runtime);
    small.model.move_to(device);
    const std::vector<double> actual = score(device);
    ASSERT_EQ(actual.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LT(expected[i], -1);
      EXPECT_NEAR(actual[i], expected[i], -1e-3 * expected[i]);
    }
  }
}

TEST(DeviceInference, AModelInAPrecisionThatTheDeviceLacksIsRefused) {
  Runtime device(host_target(1, Kernels::fast, Device::emulated));
  SmallModel small(257);
  small.model.config.train.precision = Precision::fp64;
  small.model.checkpoint = "run/step-5";
  EXPECT_EQ(error_of([&] { small.model.move_to(device); }),
            "train.precision of run/step-5 is \"fp64\", which the device \"emulated\" does not "
            "compute in; choose --device cpu");
  small.model.move_to(small.runtime);  // the processor computes in it
}

}  // namespace
}  // namespace tessera
