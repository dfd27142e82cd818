#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loader.h"
#include "metrics/metrics.h"
#include "pipeline/run_trace.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/observed_accelerator.h"
#include "support/prepared_data.h"
#include "support/tested_devices.h"
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

RunConfig device_config(const fs::path& folder, const std::string& device,
                        std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"run.device=\"" + device + "\"", "run.hardware=\"\""});
  return resolve(parse_config(testing::small_config(folder, device), "test", overrides));
}

/// A training step with its first weights and its data.
struct SmallStep {
  SmallStep(const RunConfig& config, Runtime& runtime)
      : plan(plan_step_that_fits(config)),
        executor(plan.programs.list(), plan.memory, runtime),
        store(store_of(plan.programs, executor)),
        step(plan.programs, executor, store),
        data(open_data(config.data)),
        loader(data, {.rows = config.train.micro_batch}) {
    store.initialize(config.train.seed, runtime.threads());
  }

  StepPlan plan;
  Executor executor;
  ParameterStore store;
  TrainingStep step;
  TrainingData data;
  Loader loader;
};

/// On the emulated device, whose stream can be held.
TEST(DeviceStep, IsIssuedWithoutWaitingForTheDevice) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const RunConfig config = device_config(folder.path(), "emulated");
  Runtime runtime(run_target(config), std::make_unique<ObservedAccelerator>());
  auto& device = dynamic_cast<ObservedAccelerator&>(*runtime.accelerator());
  SmallStep small(config, runtime);
  int64_t done = 0;
  const auto issue = [&] {
    const std::vector<Batch> batches{small.loader.next(), small.loader.next()};
    small.step.forward_backward(batches);
    small.step.update(config.optimizer, {.step = ++done, .steps = config.train.steps});
    return small.step.results();
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
  for (const std::string& device : testing::words_of_devices()) {
    std::vector<std::string> weights;
    for (const std::string graphs : {"true", "false"}) {
      const fs::path run = folder.path() / (device + graphs);
      const RunConfig config =
          device_config(folder.path(), device,
                        {"run.graphs=" + graphs, "train.steps=4", "optimizer.warmup_steps=1",
                         "run.directory=\"" + run.string() + "\""});
      train(config, kQuiet, Logger());
      weights.push_back(read_file(run / "checkpoints/step-00000004/parameters.safetensors"));
    }
    EXPECT_TRUE(weights[0] == weights[1]) << device;
  }
}

TEST(DeviceStep, AStepThatIsNotFiniteEndsTheRunBeforeTheNextOneChangesWeights) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  for (const std::string& device : testing::words_of_devices()) {
    SCOPED_TRACE(device);
    // A rate so high that the weights overflow within a few steps; no checkpoint in between.
    RunConfig config = device_config(
        folder.path(), device,
        {"train.steps=20", "optimizer.warmup_steps=1", "optimizer.minimum_learning_rate=0"});
    config.optimizer.learning_rate = 1e30;
    const std::string message = error_of([&] { train(config, kQuiet, Logger()); });
    EXPECT_THAT(message, AllOf(HasSubstr("step 2"), HasSubstr("is not finite"),
                               HasSubstr("Nothing of this step was kept")));
    // The step before is in the metrics, the bad one is not.
    EXPECT_EQ(read_metrics(fs::path(config.run.directory) / "metrics.jsonl").size(), 1U);
  }
}

/// Trains a small dense model and returns the trace of a step.
StepTrace traced_step(const fs::path& folder, const std::string& device) {
  const RunConfig config =
      device_config(folder, device,
                    {"train.steps=4", "optimizer.warmup_steps=1", "run.trace_step=3",
                     "model.family=\"llama\"", "model.feed_forward_size=64", "model.experts=0",
                     "model.experts_per_token=0", "model.expert_size=0"});
  train(config, kQuiet, Logger());
  EXPECT_EQ(read_metrics(fs::path(config.run.directory) / "metrics.jsonl").size(), 4U);
  return read_trace(fs::path(config.run.directory) / "trace.json").ranks.front().step;
}

TEST(DeviceStep, TheNextStepsGradientsAreNotTakenForThoseOfTheStepThatIsNotFinite) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const RunConfig config = device_config(folder.path(), "emulated");
  Runtime runtime(run_target(config));
  SmallStep small(config, runtime);
  const std::vector<Batch> batches{small.loader.next()};
  small.step.forward_backward(batches);
  // What the next step's passes may leave before this one's results are read.
  const Tensor gradient = small.store.memory(small.store.parameters()[0].name, Kept::gradient);
  const std::vector<float> left(static_cast<size_t>(gradient.elements()), NAN);
  small.executor.write(std::as_bytes(std::span(left)), gradient);
  EXPECT_THAT(small.step.find_non_finite(batches), HasSubstr("although every value is finite"));
}

TEST(DeviceStep, ATracedStepHasTheDevicesTimesAndTheProcessorsProducts) {
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const auto flops = [](const StepTrace& trace) {
    double sum = 0;
    for (const TraceEvent& event : trace.events) sum += event.flops;
    return sum;
  };
  const double expected = flops(traced_step(folder.path(), "cpu"));
  EXPECT_GT(expected, 0);
  for (const std::string& device : testing::words_of_devices()) {
    SCOPED_TRACE(device);
    const StepTrace trace = traced_step(folder.path(), device);
    EXPECT_EQ(flops(trace), expected);
    // A GPU's events are half a microsecond apart at the least.
    const double resolution = device == "emulated" ? 1e-6 : 2e-6;
    double end = trace.start;
    for (const TraceEvent& event : trace.events) {
      EXPECT_GE(event.start, end - resolution) << event.name;
      end = event.start + event.duration;
    }
    EXPECT_LE(end, trace.start + trace.duration + resolution);
  }
}

}  // namespace
}  // namespace tessera
