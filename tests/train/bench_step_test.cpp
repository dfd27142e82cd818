#include "train/bench_step.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hardware/accelerator_facts.h"
#include "metrics/metrics.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "train/initial_weights.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The small mixture of experts, without data.
RunConfig config(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(), {"model.vocabulary_size=64", "train.precision=\"fp32\""});
  return resolve(parse_config(testing::small_config("/nowhere"), "test", overrides));
}

StepMeasurement measure(const RunConfig& config, const Repeats& repeats) {
  Runtime runtime(run_target(config));
  return measure_step(config, repeats, runtime);
}

constexpr int64_t kTokens = 4 * 32;  // sequences of an optimizer step, tokens of one

TEST(BenchStep, RunsTheStepsThatTrainingRuns) {
  const RunConfig resolved = config();
  const StepMeasurement measured = measure(resolved, {.warmup = 1, .measured = 3});
  ASSERT_THAT(measured.seconds, SizeIs(3));
  ASSERT_THAT(measured.forward_backward_seconds, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(measured.forward_backward_seconds[i], 0);
    EXPECT_GT(measured.seconds[i], measured.forward_backward_seconds[i]);  // and the update
  }
  EXPECT_EQ(nlohmann::json::parse(step_json(measured, {}))["forward_backward_seconds"],
            nlohmann::json(measured.forward_backward_seconds));
  const StepPlan plan = plan_step_that_fits(resolved);
  EXPECT_EQ(measured.tokens, kTokens);
  EXPECT_EQ(measured.flops, 2 * plan.flops.useful());  // of two micro-batches
  EXPECT_EQ(measured.arena_bytes, plan.memory.arena_bytes);
  EXPECT_EQ(measured.parameters, plan.parameters);
  EXPECT_GT(measured.peak_memory_bytes, measured.arena_bytes);
}

TEST(BenchStep, SeveralChunksOfOneRankAreTheSameModel) {
  for (const std::string device : {"cpu", "emulated"}) {
    SCOPED_TRACE(device);
    const std::string on_device = "run.device=\"" + device + "\"";
    const Repeats repeats{.warmup = 1, .measured = 2, .before = {}};
    const StepMeasurement one = measure(config({on_device}), repeats);
    const StepMeasurement two = measure(
        config({on_device, "parallel.virtual_stages=2", "model.balance_form=layer"}), repeats);
    EXPECT_THAT(two.seconds, SizeIs(2));
    EXPECT_EQ(two.losses, one.losses);
    EXPECT_EQ(two.flops, one.flops);
    EXPECT_EQ(two.parameters, one.parameters);
    EXPECT_GT(two.arena_bytes, one.arena_bytes) << "for the boundary";
  }
}

TEST(BenchStep, SeveralRanksAreRefused) {
  EXPECT_THAT(error_of([] { measure(config({"parallel.pipeline=2"}), {}); }),
              HasSubstr("parallel.pipeline (2): this command runs one rank; set it to 1"));
  EXPECT_THAT(error_of([] { measure(config({"parallel.tensor=2"}), {}); }),
              HasSubstr("parallel.tensor (2): this command runs one rank; set it to 1"));
}

TEST(BenchStep, WeightsAreUpdated) {
  const auto losses_of = [](int64_t steps) {
    return measure(config({"optimizer.warmup_steps=0"}), {.warmup = 1, .measured = steps - 1})
        .losses;
  };
  const std::vector<double> losses = losses_of(30);
  ASSERT_THAT(losses, SizeIs(30));
  EXPECT_NEAR(losses.front(), std::log(64.0), 0.1);
  // The same tokens every step are learnt by heart.
  EXPECT_LT(losses.back(), losses.front() - 0.5);
  EXPECT_THAT(losses_of(2), ElementsAre(losses[0], losses[1]));
}

TEST(BenchStep, AStepInFlightChangesNoLoss) {
  const RunConfig emulated = config({"run.device=\"emulated\"", "optimizer.warmup_steps=0"});
  const Repeats waiting{.warmup = 1, .measured = 3, .before = {}, .turns = true};
  const StepMeasurement each = measure(emulated, waiting);
  const StepMeasurement in_flight = measure(emulated, {.warmup = 1, .measured = 3, .before = {}});
  EXPECT_THAT(in_flight.losses, SizeIs(4));
  EXPECT_EQ(in_flight.losses, each.losses);
  ASSERT_THAT(in_flight.seconds, SizeIs(3));
  for (const double seconds : in_flight.seconds) EXPECT_GT(seconds, 0);
  EXPECT_THAT(in_flight.forward_backward_seconds, IsEmpty());
}

TEST(BenchStep, ReadsTheTokensThatTrainingReads) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  for (const std::string device : {"cpu", "emulated"}) {
    SCOPED_TRACE(device);
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> overrides{"run.device=\"" + device + "\"", "run.hardware=\"\"",
                                         "train.steps=3", "optimizer.warmup_steps=1",
                                         "train.precision=\"fp32\""};
      overrides.insert(overrides.end(), more.begin(), more.end());
      return parse_config(testing::small_config(folder.path(), device), "test", overrides,
                          initial_model);
    };
    train(with({}), testing::kQuiet, Logger());
    const auto trained = read_metrics(folder.path() / device / "metrics.jsonl");
    const auto measure_from = [&](const RunConfig& config) {
      Runtime runtime(run_target(config), open_device(config));
      return measure_step(config, {.warmup = 1, .measured = 2, .before = {}}, runtime,
                          StepTokens::prepared);
    };
    const StepMeasurement measured = measure_from(resolve(with({})));
    ASSERT_THAT(measured.losses, SizeIs(3));
    ASSERT_THAT(trained, SizeIs(3));
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(measured.losses[i], trained[i].loss) << i;
    EXPECT_EQ(measured.expert_load, trained[2].expert_load);
    EXPECT_TRUE(measured.prepared_tokens);
    EXPECT_EQ(measured.idle_share.has_value(), device != "cpu");
    // Routers that have learnt come from a checkpoint.
    const std::string initial = (folder.path() / device).string();
    const StepMeasurement learnt =
        measure_from(resolve(with({"checkpoint.initial=\"" + initial + "\""})));
    EXPECT_LT(learnt.losses[0], trained[0].loss);
  }
}

TEST(BenchStep, SaysWhatShareOfTheTimeADeviceWaits) {
  const RunConfig emulated = config({"run.device=\"emulated\""});
  const StepMeasurement measured = measure(emulated, {.warmup = 1, .measured = 3, .before = {}});
  ASSERT_TRUE(measured.idle_share.has_value());
  EXPECT_GE(*measured.idle_share, 0);
  EXPECT_LT(*measured.idle_share, 1);
  const auto json = nlohmann::json::parse(step_json(measured, {}));
  EXPECT_EQ(json["idle_share"], *measured.idle_share);
  EXPECT_EQ(json["tokens_from"], "random");
  EXPECT_THAT(step_text(measured, {}), HasSubstr("waits for the host"));
  // Where each step is waited for, the device waits because it is told to.
  const Repeats turns{.warmup = 0, .measured = 1, .before = {}, .turns = true};
  EXPECT_FALSE(measure(emulated, turns).idle_share.has_value());
}

TEST(BenchStep, ALossThatIsNotFiniteIsAnError) {
  RunConfig wild = config({"optimizer.warmup_steps=0", "optimizer.clip_norm=0"});
  wild.optimizer.learning_rate = 1e38;  // more than a configuration may say
  EXPECT_THAT(error_of([&] { measure(wild, {.warmup = 0, .measured = 5}); }),
              HasSubstr("lower optimizer.learning_rate"));
}

TEST(BenchStep, ReportsWhatWasMeasured) {
  const StepMeasurement measured{.seconds = {0.5, 0.25, 1.0},
                                 .tokens = 1000,
                                 .flops = 1e9,
                                 .parameters = 7,
                                 .active_parameters = 5,
                                 .arena_bytes = 11,
                                 .peak_memory_bytes = 13,
                                 .losses = {3.5, 2.5}};
  const MeasuredOn on{{"Some CPU", {"avx2"}, 1, 2, 3, 2}, Precision::bf16, 8e9};
  const auto json = nlohmann::json::parse(step_json(measured, on));
  EXPECT_EQ(json["seconds"], nlohmann::json({0.5, 0.25, 1.0}));
  EXPECT_EQ(json["tokens_per_second"], 2000);
  EXPECT_EQ(json["mfu"], 0.25);
  EXPECT_EQ(json["peak_memory_bytes"], 13);
  EXPECT_EQ(json["arena_bytes"], 11);
  EXPECT_EQ(json["gemm_peak"], 8e9);
  EXPECT_EQ(json["processor"]["name"], "Some CPU");
  EXPECT_EQ(json["processor"]["threads"], 2);
  const std::string text = step_text(measured, on);
  EXPECT_THAT(text, HasSubstr("500 ms (300 ms-900 ms)"));
  EXPECT_THAT(text, HasSubstr("25.0 % of 8.0 GFLOP/s (bf16, measured now)\n"));
}

TEST(BenchStep, NamesThePeaksThatMfuRefersTo) {
  const StepMeasurement measured{.seconds = {0.5}, .tokens = 1000, .flops = 1e9, .losses = {3.5}};
  const MeasuredOn on{.processor = {"Some CPU", {"avx2"}, 1, 2, 3, 2},
                      .precision = Precision::bf16,
                      .gemm_peak = 8e9,
                      .device = Device::emulated,
                      .accelerator = "some device",
                      .hardware_peak = ProductPeak{10e9, "the data sheet in gpu.json"}};
  const auto json = nlohmann::json::parse(step_json(measured, on));
  EXPECT_EQ(json["mfu"], 0.25);
  EXPECT_EQ(json["mfu_of_hardware_peak"], 0.2);
  EXPECT_EQ(json["hardware_peak"]["source"], "the data sheet in gpu.json");
  EXPECT_EQ(json["note"], kEmulatedFigures);
  EXPECT_THAT(
      step_text(measured, on),
      AllOf(HasSubstr("25.0 % of 8.0 GFLOP/s (bf16, measured now), 20.0 % of 10.0 GFLOP/s "
                      "(the data sheet in gpu.json)"),
            HasSubstr("some device, beside Some CPU"), HasSubstr(std::string(kEmulatedFigures))));
}

}  // namespace
}  // namespace tessera
