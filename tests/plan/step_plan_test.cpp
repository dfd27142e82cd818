#include "plan/step_plan.h"

#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/resolve.h"

namespace tessera {
namespace {

/// A processor that need not be this one.
Target some_target(MatrixInstructions instructions) {
  return {.threads = 16,
          .instructions = instructions,
          .caches = {.first_level = 48 << 10, .second_level = 2 << 20, .last_level = 300 << 20}};
}

/// The shipped configuration, with a vocabulary where its data would give it.
RunConfig shipped(const fs::path& path) {
  RunConfig config = load_config(path);
  if (config.model.vocabulary_size == 0) config.model.vocabulary_size = 4096;
  return resolve(config);
}

TEST(StepPlan, OfEveryShippedConfigurationForAnotherMachineHasNoHoles) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const RunConfig config = shipped(entry.path());
    const StepPlan plan = plan_step(config, some_target(MatrixInstructions::amx));
    const auto live = static_cast<double>(plan.memory.live_bytes);
    EXPECT_GE(plan.memory.arena_bytes, plan.memory.live_bytes);
    EXPECT_LE(static_cast<double>(plan.memory.arena_bytes), 1.01 * live) << entry.path();
    // Masters, gradients and two moments in f32, and weights in bf16.
    int64_t least = 0;
    for (const ParameterSpec& spec : plan.programs.chunks.front().parameters.specs()) {
      if (spec.role == ParameterRole::balance) continue;
      least += spec.shape.elements() * (spec.dtype == DType::bf16 ? 4 * 4 + 2 : 4 * 4);
    }
    EXPECT_GE(plan.memory.kept_bytes, least) << entry.path();
    EXPECT_GT(plan.memory.arena_bytes, plan.memory.kept_bytes);
    ++count;
  }
  EXPECT_GE(count, 20);
}

/// Its libraries take no experts whose sides are not multiples of 8, and want scratch memory.
TEST(StepPlan, OfEveryShippedConfigurationIsMadeForADeviceThatIsNotThere) {
  Target target = some_target(MatrixInstructions::amx);
  target.device = Device::cuda;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path());
    const RunConfig config = shipped(entry.path());
    EXPECT_GT(plan_step(config, target).memory.arena_bytes, int64_t{32} << 20);
  }
}

TEST(StepPlan, IsAFunctionOfTheTarget) {
  const RunConfig config = shipped(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml");
  const auto arena = [&](const Target& target) {
    return plan_step(config, target).memory.arena_bytes;
  };
  const Target amx = some_target(MatrixInstructions::amx);
  EXPECT_EQ(arena(amx), arena(amx));
  Target fewer = amx;
  fewer.threads = 2;
  EXPECT_LT(arena(fewer), arena(amx));
  EXPECT_NE(arena(some_target(MatrixInstructions::avx2)), arena(amx));
}

TEST(StepPlan, OfARunThatEvaluatesHoldsTheEvaluationToo) {
  RunConfig config = shipped(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml");
  const Target target = some_target(MatrixInstructions::avx512_bf16);
  config.train.evaluate_every = 1;
  const StepPlan evaluating = plan_step(config, target);
  config.train.evaluate_every = 0;
  const StepPlan training = plan_step(config, target);
  EXPECT_EQ(evaluating.programs.list().size(), training.programs.list().size() + 1);
  // It runs while no micro-batch is in flight: what a step takes is more.
  EXPECT_EQ(evaluating.memory.arena_bytes, training.memory.arena_bytes);
}

}  // namespace
}  // namespace tessera
