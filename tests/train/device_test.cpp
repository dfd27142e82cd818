#include <cmath>

#include <gtest/gtest.h>

#include "metrics/metrics.h"
#include "support/prepared_data.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using testing::kQuiet;
using testing::kResume;

/// Runs of a small mixture on the emulated device.
class DeviceTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    testing::prepare_small_data(folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const std::string& run, const std::string& device,
                          const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all{"run.device=\"" + device + "\"",
                                 "train.steps=8",
                                 "optimizer.warmup_steps=2",
                                 "model.family=\"olmoe\"",
                                 "model.layers=2",
                                 "model.hidden_size=32",
                                 "model.experts=4",
                                 "model.experts_per_token=2",
                                 "model.expert_size=16",
                                 "train.evaluate_every=4",
                                 "train.evaluate_batches=2",
                                 "checkpoint.every=4"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_config(testing::small_config(folder_->path(), run), "test", all);
  }

  static std::vector<StepMetrics> metrics(const std::string& run) {
    return read_metrics(folder_->path() / run / "metrics.jsonl");
  }

  static std::string weights(const std::string& run) {
    return read_file(folder_->path() / run / "checkpoints/step-00000008/parameters.safetensors");
  }

  static TemporaryFolder* folder_;
};

TemporaryFolder* DeviceTraining::folder_ = nullptr;

TEST_F(DeviceTraining, FollowsTheProcessorsCurve) {
  for (const auto& [precision, bound] : {std::pair("fp32", 1e-5), std::pair("bf16", 1e-3)}) {
    const std::string setting = fmt::format("train.precision=\"{}\"", precision);
    const std::string host = fmt::format("host-{}", precision);
    const std::string device = fmt::format("device-{}", precision);
    train(config(host, "cpu", {setting}), kQuiet, Logger());
    train(config(device, "emulated", {setting}), kQuiet, Logger());
    const auto expected = metrics(host), actual = metrics(device);
    ASSERT_EQ(actual.size(), 8U);
    ASSERT_EQ(expected.size(), 8U);
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i].loss, expected[i].loss, bound * expected[i].loss) << "step " << i;
      EXPECT_NEAR(actual[i].grad_norm, expected[i].grad_norm, 20 * bound * expected[i].grad_norm);
      EXPECT_EQ(actual[i].held_out_loss.has_value(), expected[i].held_out_loss.has_value());
    }
    EXPECT_NEAR(*actual[7].held_out_loss, *expected[7].held_out_loss, bound * 6);
    EXPECT_LT(actual[7].loss, actual[0].loss - 0.1);
  }
}

TEST_F(DeviceTraining, TrainsTheDemosModel) {
  const std::string demo = read_file(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml");
  const auto losses = [&](const std::string& run, const std::string& device) {
    const fs::path data = folder_->path() / "data";
    const std::vector<std::string> overrides{
        "run.device=\"" + device + "\"",
        "run.trace_step=0",
        "run.threads=2",
        "run.directory=\"" + (folder_->path() / run).string() + "\"",
        "data.directory=\"" + data.string() + "\"",
        "data.context=32",
        "train.micro_batch=2",
        "train.global_batch=2",
        "train.steps=3",
        "train.evaluate_every=0",
        "optimizer.warmup_steps=1"};
    train(parse_config(demo, "demo.toml", overrides), kQuiet, Logger());
    return metrics(run);
  };
  const auto expected = losses("demo-host", "cpu"), actual = losses("demo-device", "emulated");
  ASSERT_EQ(actual.size(), 3U);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i].loss, expected[i].loss, 2e-3 * expected[i].loss) << "step " << i;
  }
  EXPECT_LT(actual[2].loss, actual[0].loss);
}

TEST_F(DeviceTraining, TwoRunsAndAResumedOneGiveTheSameBits) {
  train(config("first", "emulated"), kQuiet, Logger());
  train(config("second", "emulated"), kQuiet, Logger());
  train(config("third", "emulated", {"train.stop_after=4"}), kQuiet, Logger());
  train(config("third", "emulated"), kResume, Logger());
  EXPECT_TRUE(weights("first") == weights("second"));
  EXPECT_TRUE(weights("first") == weights("third"));
}

TEST_F(DeviceTraining, ACheckpointGoesToTheDeviceAndBack) {
  train(config("there", "cpu", {"train.stop_after=3"}), kQuiet, Logger());
  train(config("there", "emulated", {"train.stop_after=6"}), kResume, Logger());
  train(config("there", "cpu"), kResume, Logger());
  train(config("stayed", "cpu"), kQuiet, Logger());
  const auto there = metrics("there"), stayed = metrics("stayed");
  ASSERT_EQ(there.size(), stayed.size());
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_NEAR(there[i].loss, stayed[i].loss, 2e-3 * stayed[i].loss) << "step " << i;
  }
}

}  // namespace
}  // namespace tessera
