#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loader.h"
#include "engine/step_trace.h"
#include "metrics/metrics.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/observed_accelerator.h"
#include "support/prepared_data.h"
#include "train/train_options.h"
#include "train/training_step.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::HeldStream;
using testing::kQuiet;
using testing::kResume;
using testing::ObservedAccelerator;

RunConfig emulated_config(const fs::path& folder, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "run.device=\"emulated\"");
  return resolve(parse_config(testing::small_config(folder), "test", overrides));
}

TEST(DeviceStep, IsIssuedWithoutWaitingForTheDevice) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const RunConfig config = emulated_config(folder.path());
  Runtime runtime(run_target(config), std::make_unique<ObservedAccelerator>());
  auto& device = dynamic_cast<ObservedAccelerator&>(*runtime.accelerator());
  const StepPlan plan = plan_step_that_fits(config);
  Executor executor(plan.programs.list(), plan.memory, runtime);
  ParameterStore store(executor, plan.programs.update_number(), plan.programs.rounding_number(),
                       plan.programs.chunks.front().parameters);
  TrainingStep step(plan.programs, executor, store);
  store.initialize(config.train.seed, runtime.threads());
  const TrainingData data = open_data(config.data);
  Loader loader(data, {.rows = config.train.micro_batch});
  int64_t done = 0;
  const auto issue = [&] {
    const std::vector<Batch> batches{loader.next(), loader.next()};
    step.accumulate(batches);
    step.update(config.optimizer, {.step = ++done, .steps = config.train.steps});
    return step.results();
  };
  double first_loss = 0;
  for (int i = 0; i < 3; ++i) {  // plain, captured, launched
    const StepResults results = issue().wait();
    if (i == 0) first_loss = results.cross_entropy;
  }
  ASSERT_EQ(device.streams.size(), 1U);
  for (const bool steady : {false, true}) {  // the first time takes more pinned memory
    const int waits = device.waits;
    HeldStream held(*device.streams[0]);
    const PendingResults earlier = issue();  // would never return if it waited
    const PendingResults later = issue();
    EXPECT_TRUE(!steady || device.waits == waits) << device.waits - waits;
    held.release();
    EXPECT_TRUE(later.wait().updated);
    EXPECT_LT(later.wait().cross_entropy, first_loss);
    EXPECT_TRUE(earlier.wait().updated);
  }
}

TEST(DeviceStep, GraphsChangeNoBit) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  std::vector<std::string> weights;
  for (const std::string graphs : {"true", "false"}) {
    const RunConfig config = emulated_config(
        folder.path(), {"run.graphs=" + graphs, "train.steps=4", "optimizer.warmup_steps=1",
                        "run.directory=\"" + (folder.path() / graphs).string() + "\""});
    train(config, kQuiet, Logger());
    weights.push_back(
        read_file(folder.path() / graphs / "checkpoints/step-00000004/parameters.safetensors"));
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

TEST(DeviceStep, AStepThatIsNotFiniteEndsTheRunBeforeTheNextOneChangesWeights) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  // A rate so high that the weights overflow within a few steps; no checkpoint in between.
  const RunConfig config = emulated_config(
      folder.path(), {"train.steps=20", "optimizer.learning_rate=1e30", "optimizer.warmup_steps=1",
                      "optimizer.minimum_learning_rate=0"});
  const std::string message = error_of([&] { train(config, kQuiet, Logger()); });
  EXPECT_THAT(message, AllOf(HasSubstr("step 2"), HasSubstr("is not finite"),
                             HasSubstr("Nothing of this step was kept")));
  // The step before is in the metrics, the bad one is not.
  EXPECT_EQ(read_metrics(fs::path(config.run.directory) / "metrics.jsonl").size(), 1U);
}

TEST(DeviceStep, ATracedStepHasTheDevicesTimesAndTheProcessorsProducts) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  std::vector<StepTrace> traces;
  for (const std::string device : {"cpu", "emulated"}) {
    const RunConfig config = emulated_config(
        folder.path(),
        {"train.steps=4", "optimizer.warmup_steps=1", "run.trace_step=3", "model.family=\"llama\"",
         "model.feed_forward_size=64", "model.experts=0", "model.experts_per_token=0",
         "model.expert_size=0", "run.device=\"" + device + "\"",
         "run.directory=\"" + (folder.path() / device).string() + "\""});
    train(config, kQuiet, Logger());
    traces.push_back(read_trace(fs::path(config.run.directory) / "trace.json"));
    ASSERT_EQ(read_metrics(fs::path(config.run.directory) / "metrics.jsonl").size(), 4U);
  }
  const auto flops = [](const StepTrace& trace) {
    double sum = 0;
    for (const TraceEvent& event : trace.events) sum += event.flops;
    return sum;
  };
  EXPECT_GT(flops(traces[0]), 0);
  EXPECT_EQ(flops(traces[0]), flops(traces[1]));
  double end = traces[1].start;
  for (const TraceEvent& event : traces[1].events) {
    EXPECT_GE(event.start, end - 1e-6) << event.name;
    end = event.start + event.duration;
  }
  EXPECT_LE(end, traces[1].start + traces[1].duration + 1e-6);
}

}  // namespace
}  // namespace tessera
