#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "device/emulated_accelerator.h"
#include "metrics/metrics.h"
#include "support/prepared_data.h"
#include "support/tested_devices.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using testing::kQuiet;
using testing::kResume;

/// Runs of a small mixture on all devices.
class DeviceTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    testing::prepare_small_data(folder_->path());
    testing::write_known_peak(*folder_ / "emulated.json", testing::two_threads(),
                              open_emulated().get());
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const std::string& run, const std::string& device,
                          const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all{"run.device=\"" + device + "\"",
                                 "run.hardware=\"" + known_peak(device) + "\"",
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

  /// A real device's is measured.
  static std::string known_peak(const std::string& device) {
    if (device == "cpu") return (*folder_ / "hardware.json").string();
    return device == "emulated" ? (*folder_ / "emulated.json").string() : "";
  }

  static std::vector<StepMetrics> metrics(const std::string& run) {
    return read_metrics(folder_->path() / run / "metrics.jsonl");
  }

  static std::string weights(const std::string& run) {
    return read_file(folder_->path() / run / "checkpoints/step-00000004/parameters.safetensors");
  }

  static TemporaryFolder* folder_;
};

TemporaryFolder* DeviceTraining::folder_ = nullptr;

/// Returns how far a loss may be from the processor's, relatively: `bound` on the emulated device.
/// A GPU sums products in another order, and a token whose two experts score nearly alike may go to
/// the other one, so it may be 1e-2 away.
double curve_bound(const std::string& device, double bound) {
  return device == "emulated" ? bound : 1e-2;
}

/// Compares the losses of each step, and prints a GPU's largest difference as a figure.
void expect_same_losses(const std::vector<StepMetrics>& actual,
                        const std::vector<StepMetrics>& expected, const std::string& device,
                        double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i].loss - expected[i].loss) / expected[i].loss;
    EXPECT_LE(difference, curve_bound(device, bound)) << "step " << i;
    largest = std::max(largest, difference);
  }
  if (device != "emulated") testing::print_figure("losses' relative difference", largest, bound);
}

void expect_same_curve(const std::vector<StepMetrics>& actual,
                       const std::vector<StepMetrics>& expected, const std::string& device,
                       double emulated_bound) {
  ASSERT_EQ(actual.size(), 8U);
  ASSERT_EQ(expected.size(), 8U);
  expect_same_losses(actual, expected, device, emulated_bound);
  const double bound = curve_bound(device, emulated_bound);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i].grad_norm, expected[i].grad_norm, 20 * bound * expected[i].grad_norm);
    EXPECT_EQ(actual[i].held_out_loss.has_value(), expected[i].held_out_loss.has_value());
  }
  EXPECT_NEAR(*actual[7].held_out_loss, *expected[7].held_out_loss, bound * 6);
  EXPECT_LT(actual[7].loss, actual[0].loss - 0.1);
}

TEST_F(DeviceTraining, FollowsTheProcessorsCurve) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const std::string setting = "train.precision=\"" + precision + "\"";
    train(config("host-" + precision, "cpu", {setting}), kQuiet, Logger());
    for (const std::string& device : testing::words_of_devices()) {
      SCOPED_TRACE(device + " in " + precision);
      const std::string run = device + "-" + precision;
      train(config(run, device, {setting}), kQuiet, Logger());
      expect_same_curve(metrics(run), metrics("host-" + precision), device,
                        precision == "fp32" ? 1e-5 : 1e-3);
    }
  }
}

TEST_F(DeviceTraining, TrainsTheDemosModel) {
  const std::string demo = read_file(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml");
  const auto losses = [&](const std::string& run, const std::string& device) {
    const fs::path data = folder_->path() / "data";
    const std::vector<std::string> overrides{
        "run.device=\"" + device + "\"",
        "run.trace_step=0",
        fmt::format("run.threads={}", testing::two_threads()),
        "run.hardware=\"" + known_peak(device) + "\"",
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
  const auto expected = losses("demo-host", "cpu");
  for (const std::string& device : testing::words_of_devices()) {
    SCOPED_TRACE(device);
    const auto actual = losses("demo-" + device, device);
    ASSERT_EQ(actual.size(), 3U);
    expect_same_losses(actual, expected, device, 2e-3);
    EXPECT_LT(actual[2].loss, actual[0].loss);
  }
}

TEST_F(DeviceTraining, TwoRunsAndAResumedOneGiveTheSameBits) {
  for (const std::string& device : testing::words_of_devices()) {
    const std::string four = "train.steps=4";
    train(config("first-" + device, device, {four}), kQuiet, Logger());
    train(config("second-" + device, device, {four}), kQuiet, Logger());
    train(config("third-" + device, device, {four, "train.stop_after=2"}), kQuiet, Logger());
    train(config("third-" + device, device, {four}), kResume, Logger());
    EXPECT_TRUE(weights("first-" + device) == weights("second-" + device)) << device;
    EXPECT_TRUE(weights("first-" + device) == weights("third-" + device)) << device;
  }
}

TEST_F(DeviceTraining, RecomputingChangesNoBit) {
  std::string expected;
  for (const char* const parts : {"", "'norm'", "'layer', 'experts'"}) {
    const std::string run = fmt::format("recomputed{}", std::strlen(parts));
    const std::string recompute = fmt::format("train.recompute=[{}]", parts);
    train(config(run, "emulated", {"train.precision=\"fp32\"", "train.steps=4", recompute}), kQuiet,
          Logger());
    if (expected.empty()) expected = weights(run);
    EXPECT_TRUE(weights(run) == expected) << recompute;
  }
}

TEST_F(DeviceTraining, ACheckpointGoesToTheDeviceAndBack) {
  train(config("stayed", "cpu"), kQuiet, Logger());
  const auto stayed = metrics("stayed");
  for (const std::string& device : testing::words_of_devices()) {
    SCOPED_TRACE(device);
    const std::string run = "to-" + device;
    train(config(run, "cpu", {"train.stop_after=3"}), kQuiet, Logger());
    train(config(run, device, {"train.stop_after=6"}), kResume, Logger());
    train(config(run, "cpu"), kResume, Logger());
    expect_same_losses(metrics(run), stayed, device, 2e-3);
  }
}

}  // namespace
}  // namespace tessera
