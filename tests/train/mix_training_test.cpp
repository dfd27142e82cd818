#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "inference/evaluate.h"
#include "inference/loaded_model.h"
#include "metrics/metrics.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "train/train_options.h"
#include "train/trainer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::kQuiet;
using testing::kResume;

/// A prepared folder and a headerless token file of another text, mixed.
class MixTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::prepare_small_data(folder_.path(), 32, 100);
    std::string bytes;
    for (int i = 0; i < 60 * 32; ++i) bytes += std::string{static_cast<char>('0' + i % 10), '\0'};
    write_file(folder_.path() / "digits.npy", bytes);
  }

  /// The mixed configuration of a run of its own: micro-batches of 2, global batches of 4.
  RunConfig config(const std::string& run, std::vector<std::string> overrides = {}) const {
    const std::string web = (folder_.path() / "data").string();
    const std::string digits = (folder_.path() / "digits.npy").string();
    overrides.insert(
        overrides.begin(),
        {"data.sources=[{name = \"web\", path = \"" + web + "\", weight = 0.75}, {path = \"" +
             digits + "\", weight = 0.25, dtype = \"uint16\", held_out = 0.1}]",
         "train.steps=40", "checkpoint.every=0"});
    const std::string text = testing::small_config(folder_.path(), run);
    const std::string key = "directory = \"" + web + "\"\n";
    std::string without = text;
    without.erase(without.find(key), key.size());
    return parse_config(without, "test", overrides);
  }
  fs::path run_folder(const std::string& run) const { return folder_.path() / run; }
  std::string parameters(const std::string& run, int64_t step) const {
    return read_file(run_folder(run) / "checkpoints" / fmt::format("step-{:08}", step) /
                     "parameters.safetensors");
  }

  TemporaryFolder folder_;
};

TEST_F(MixTrainingTest, WhatEachSourceContributedIsReportedExactly) {
  train(config("run", {"train.evaluate_every=20"}), kQuiet, Logger());
  const auto metrics = read_metrics(run_folder("run") / "metrics.jsonl");
  ASSERT_EQ(metrics.size(), 40U);
  for (const StepMetrics& step : metrics) {
    ASSERT_EQ(step.sources.size(), 2U);
    EXPECT_EQ(step.sources[0].name, "web");
    EXPECT_EQ(step.sources[1].name, "digits");
    EXPECT_EQ(step.sources[0].tokens, step.step * 3 * 32);
    EXPECT_EQ(step.sources[1].tokens, step.step * 32);
    EXPECT_EQ(step.sources[0].held_out_loss.has_value(), step.step % 20 == 0);
  }
  // 60 instances, and the end-of-document token that is cut off; 6 are held out.
  EXPECT_DOUBLE_EQ(metrics[39].sources[1].epochs, 40.0 / 54);
  const StepMetrics& evaluated = metrics[39];
  EXPECT_NEAR(
      *evaluated.held_out_loss,
      0.75 * *evaluated.sources[0].held_out_loss + 0.25 * *evaluated.sources[1].held_out_loss,
      1e-12);
  EXPECT_THAT(read_file(run_folder("run") / "config.toml"), HasSubstr("[[data.sources]]"));
}

TEST_F(MixTrainingTest, StopsAnywhereChangeNoBit) {
  train(config("whole"), kQuiet, Logger());
  const CounterRandom random(3, "stops");
  int64_t step = 0;
  for (uint64_t stop = 0; step < 40; ++stop) {
    step = std::min<int64_t>(40, step + 1 + static_cast<int64_t>(random.bits(stop) % 13));
    const auto part = config("parts", {fmt::format("train.stop_after={}", step)});
    train(part, stop == 0 ? kQuiet : kResume, Logger());
  }
  EXPECT_TRUE(parameters("parts", 40) == parameters("whole", 40));
  const auto whole = read_metrics(run_folder("whole") / "metrics.jsonl");
  const auto parts = read_metrics(run_folder("parts") / "metrics.jsonl");
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(parts[i].loss, whole[i].loss);
    EXPECT_EQ(parts[i].sources, whole[i].sources);
  }
}

TEST_F(MixTrainingTest, WeightsMayChangeWhereARunIsResumed) {
  train(config("changed", {"train.stop_after=20"}), kQuiet, Logger());
  train(config("changed", {"data.sources.digits.weight=0.75"}), kResume, Logger());
  const auto metrics = read_metrics(run_folder("changed") / "metrics.jsonl");
  EXPECT_EQ(metrics[19].sources[1].tokens, 20 * 32);
  EXPECT_EQ(metrics[39].sources[0].tokens, (20 * 3 + 20 * 2) * 32);
  EXPECT_EQ(metrics[39].sources[1].tokens, (20 + 20 * 2) * 32);
  EXPECT_GT(metrics[39].sources[1].epochs, 1);  // 60 of 54 instances
}

TEST_F(MixTrainingTest, ACheckpointOfTokenFilesCarriesTheTokenizer) {
  const std::string digits = (folder_.path() / "digits.npy").string();
  const RunConfig alone =
      config("alone", {"data.sources=[{path = \"" + digits + "\", dtype = \"uint16\"}]",
                       "data.tokenizer=bytes", "train.steps=3", "optimizer.warmup_steps=1"});
  train(alone, kQuiet, Logger());
  const LoadedModel model = load_model(run_folder("alone"), 2);
  EXPECT_EQ(model.tokenizer->kind(), "bytes");
  EXPECT_EQ(model.config.model.vocabulary_size, 257);
  EXPECT_EQ(model.config.data.sources.at(0).name, "digits");
}

TEST_F(MixTrainingTest, DataWithoutHeldOutPartIsRefusedBeforeTheFirstStep) {
  const std::string digits = (folder_.path() / "digits.npy").string();
  const std::string source = "{path = \"" + digits + "\", dtype = \"uint16\", held_out = 0";
  for (const std::string& sources :
       {source + "}", source + "}, " + source + ", name = \"again\"}"}) {
    const RunConfig without =
        config("without", {"data.sources=[" + sources + "]", "data.tokenizer=bytes",
                           "train.evaluate_every=20", "train.steps=20"});
    EXPECT_THAT(
        error_of([&] { train(without, kQuiet, Logger()); }),
        ::testing::AllOf(HasSubstr("train.evaluate_every is 20, and no source has held-out"),
                         HasSubstr("set held_out of their [[data.sources]] above 0")));
    EXPECT_FALSE(fs::exists(run_folder("without"))) << "nothing was trained";
  }
}

}  // namespace
}  // namespace tessera
