#include "plan/step_plan.h"

#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/phases.h"
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
    // Masters, gradients and two moments in f32, and weights in bf16; Muon has one moment.
    int64_t least = 0;
    for (const ParameterSpec& spec : plan.programs.model.parameters.specs()) {
      if (spec.role == ParameterRole::balance) continue;
      const bool by_muon =
          config.optimizer.name == OptimizerName::muon && is_hidden_matrix(spec.role, spec.shape);
      const int64_t wide = 4 * (by_muon ? 3 : 4);
      least += spec.shape.elements() * (spec.dtype == DType::bf16 ? wide + 2 : wide);
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

/// Three phases, of which the first and the last run the same programs.
TEST(StepPlan, OfPhasesHasOneArenaAsLargeAsTheLargest) {
  const auto phased = [](const std::string& more) {
    return resolve(parse_config(
        "[model]\nfamily = 'llama'\nlayers = 2\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
        "feed_forward_size = 48\nvocabulary_size = 64\n[data]\ncontext = 16\n"
        "[train]\nmicro_batch = 2\nglobal_batch = 8\nprecision = 'fp32'\nevaluate_every = 2\n" +
            more,
        "test"));
  };
  const Target target = some_target(MatrixInstructions::none);
  const RunConfig config = phased(
      "[[train.phases]]\nsteps = 20\n"
      "[[train.phases]]\nsteps = 5\ncontext = 64\nrope_theta = 1e6\n"
      "[[train.phases]]\nsteps = 5\nglobal_batch = 4\n");
  const StepPlan plan = plan_step(config, target);
  EXPECT_EQ(plan.programs.set_of_phase, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(plan.programs.sets.size(), 2U);
  const std::vector<const Program*> list = plan.programs.list();
  ASSERT_EQ(list.size(), 7U);
  EXPECT_EQ(list[static_cast<size_t>(plan.programs.chunk_number(1))],
            &plan.programs.sets[1].chunks[0].program);
  EXPECT_EQ(list[static_cast<size_t>(plan.programs.evaluation_number(1))],
            &plan.programs.sets[1].evaluation->chunks[0].program);
  std::vector<int64_t> tokens;
  for (const PhaseWork& work : plan.phases) {
    tokens.push_back(work.tokens * work.micro_batches);
  }
  EXPECT_EQ(tokens, (std::vector<int64_t>{8 * 16, 8 * 64, 4 * 16}));
  int64_t largest = 0;
  for (const RunPhase& phase : phases_of(config)) {
    const StepPlan alone = plan_step(phase.config, target);
    EXPECT_EQ(alone.memory.kept_bytes, plan.memory.kept_bytes) << "weights and states are shared";
    largest = std::max(largest, alone.memory.live_bytes);
  }
  EXPECT_EQ(plan.memory.live_bytes, largest);
  EXPECT_GE(plan.memory.arena_bytes, largest);
  EXPECT_LE(static_cast<double>(plan.memory.arena_bytes), 1.05 * static_cast<double>(largest));
  EXPECT_EQ(plan_step(phased("steps = 40\n"), target).programs.sets.size(), 1U);
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
