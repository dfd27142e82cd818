// A run of several phases, on one rank and on several.

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/loaded_model.h"
#include "support/error_of.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The batches that a run computes, by step: context, rows and tokens of each micro-batch of rank
/// 0.
using SeenBatches = std::map<int64_t, std::vector<Batch>>;

class Phases : public Ranks {
 protected:
  static void SetUpTestSuite() {
    Ranks::SetUpTestSuite();
    PrepareOptions options;
    options.inputs = {(folder_->path() / "text.txt").string()};
    options.output = folder_->path() / "long";
    options.tokenizer = "bytes";
    options.context = 64;
    options.held_out = 0.05;
    options.progress = false;
    options.threads = testing::two_threads();
    prepare(options, Logger::silent());
  }

  /// Three phases of 6, 5 and 7 steps: the second has another batch and mix, the third is longer,
  /// with another theta and course. With kShort they have 2 each.
  static RunConfig phased(const std::string& run, const std::vector<std::string>& more = {}) {
    const auto source = [&](const std::string& name) {
      return "{name = \"" + name + "\", path = \"" + (folder_->path() / name).string() + "\"}";
    };
    std::vector<std::string> all{
        "data.directory=\"\"",
        "data.sources=[" + source("data") + ", " + source("long") + "]",
        "train.phases=[{steps = 6, sources = [\"data\"]}, "
        "{name = \"mixed\", steps = 5, global_batch = 12, sources = [\"data=1\", \"long=2\"]}, "
        "{name = \"long\", steps = 7, context = 64, micro_batch = 1, rope_theta = 1e5, "
        "sources = [\"long\"], learning_rate = 1e-3, minimum_learning_rate = 1e-4, "
        "schedule = \"linear\"}]",
        "train.steps=18",
        "train.evaluate_every=4",
        "train.evaluate_batches=2",
        "checkpoint.every=0",
        "checkpoint.keep=20"};
    all.insert(all.end(), more.begin(), more.end());
    return config(run, all);
  }

  inline static const std::vector<std::string> kShort{
      "train.phases.0.steps=2", "train.phases.1.steps=2", "train.phases.2.steps=2", "train.steps=6",
      "optimizer.warmup_steps=1"};

  static SeenBatches batches_of(const RunConfig& config) {
    SeenBatches seen;
    TrainOptions options;
    options.on_batches = [&](int rank, int64_t step, std::span<const Batch> batches) {
      if (rank == 0) seen[step].assign(batches.begin(), batches.end());
    };
    train_on(1, config, options);
    return seen;
  }

  /// The metrics of a run but for its times.
  static void expect_same_metrics(const std::string& a, const std::string& b) {
    const std::vector<StepMetrics> of_a = metrics(a), of_b = metrics(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t i = 0; i < of_a.size(); ++i) {
      SCOPED_TRACE(of_a[i].step);
      EXPECT_EQ(of_a[i].loss, of_b[i].loss);
      EXPECT_EQ(of_a[i].grad_norm, of_b[i].grad_norm);
      EXPECT_EQ(of_a[i].lr, of_b[i].lr);
      EXPECT_EQ(of_a[i].tokens, of_b[i].tokens);
      EXPECT_EQ(of_a[i].flops, of_b[i].flops);
      EXPECT_EQ(of_a[i].held_out_loss, of_b[i].held_out_loss);
      EXPECT_EQ(of_a[i].phase, of_b[i].phase);
      EXPECT_EQ(of_a[i].sources, of_b[i].sources);
    }
  }

  /// A short run that is stopped after each of these steps gives the bits of one without a stop.
  static void expect_same_resumed(const std::string& name, int ranks, std::vector<std::string> more,
                                  const std::vector<int64_t>& stops) {
    SCOPED_TRACE(name);
    more.insert(more.end(), kShort.begin(), kShort.end());
    train_on(ranks, phased(name, more));
    const std::string run = name + "-stopped";
    for (const int64_t stop : stops) {
      std::vector<std::string> stopped = more;
      stopped.push_back(fmt::format("train.stop_after={}", stop));
      EXPECT_EQ(train_on(ranks, phased(run, stopped), {.resume = stop != stops.front()}).step,
                stop);
    }
    EXPECT_EQ(train_on(ranks, phased(run, more), {.resume = true}).step, 6);
    EXPECT_TRUE(tensors(name, 6) == tensors(run, 6));
    expect_same_metrics(name, run);
  }
};

TEST_F(Phases, ResumedWithinThemAndAtTheirBordersGiveTheSameBits) {
  expect_same_resumed("whole", 1, {}, {1, 2, 3, 4});
}

TEST_F(Phases, ResumedOnSeveralRanksGiveTheSameBits) {
  expect_same_resumed("data", 2, {}, {2, 3});
  expect_same_resumed("tensor", 2, {"parallel.tensor=2"}, {4});
}

TEST_F(Phases, ResumedOnADeviceGiveTheSameBits) {
  expect_same_resumed("device", 1,
                      {"run.device=emulated", "train.precision=fp32", "run.hardware=\"\""}, {2, 3});
}

TEST_F(Phases, ThatChangeNothingGiveTheBitsOfARunWithoutThem) {
  train_on(1, config("plain"));
  train_on(1, config("split", {"train.phases=[{steps = 7}, {steps = 10}, {steps = 3}]"}));
  EXPECT_TRUE(tensors("plain", 20) == tensors("split", 20));
  const std::vector<StepMetrics> plain = metrics("plain"), split = metrics("split");
  ASSERT_EQ(plain.size(), split.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].lr, split[i].lr);
    EXPECT_EQ(plain[i].flops, split[i].flops);
    EXPECT_EQ(plain[i].memory_bytes, split[i].memory_bytes);
    EXPECT_EQ(plain[i].phase, std::nullopt);
    EXPECT_EQ(split[i].phase, i < 7 ? 1 : i < 17 ? 2 : 3);
  }
}

TEST_F(Phases, OnSeveralRanksTrainAsOnOne) {
  train_on(1, phased("one"));
  train_on(2, phased("two"));
  expect_same_training(metrics("one"), metrics("two"), 1e-10);
}

/// Their steps have 4, 6 and 8 micro-batches, and each phase has lists of its own.
TEST_F(Phases, InAPipelineTrainAsOnOne) {
  std::vector<std::string> keys = kShort;
  keys.emplace_back("model.layers=4");
  train_on(1, phased("one-stage", keys));
  keys.emplace_back("parallel.pipeline=4");
  train_on(4, phased("four-stages", keys));
  expect_same_metrics("one-stage", "four-stages");
  EXPECT_TRUE(tensors("one-stage", 6) == tensors("four-stages", 6));
  expect_same_resumed("stages", 4, keys, {2, 3});
}

TEST_F(Phases, ReadOnWhereTheyWere) {
  const SeenBatches seen = batches_of(phased("batches"));
  ASSERT_EQ(seen.size(), 18U);
  const auto shape = [&](int64_t step) {
    const Batch& first = seen.at(step).front();
    return std::vector<int64_t>{std::ssize(seen.at(step)), first.rows, first.context};
  };
  EXPECT_EQ(shape(6), (std::vector<int64_t>{4, 2, 32}));
  EXPECT_EQ(shape(7), (std::vector<int64_t>{6, 2, 32}));
  EXPECT_EQ(shape(11), (std::vector<int64_t>{6, 2, 32}));
  EXPECT_EQ(shape(12), (std::vector<int64_t>{8, 1, 64}));
  // 60 rows of the mix: 40 of "long", each half of one of its instances. So 20 of these are over.
  DataConfig data{.directory = (folder_->path() / "long").string(), .context = 64};
  const TrainingData prepared = open_data(data);
  const InstanceSource& source = *prepared.sources.front().instances;
  for (int64_t step = 12; step <= 18; ++step) {
    for (int64_t batch = 0; batch < 8; ++batch) {
      std::vector<int32_t> expected(64);
      source.read(Split::train, 0, 20 + (step - 12) * 8 + batch, expected);
      EXPECT_EQ(seen.at(step)[static_cast<size_t>(batch)].tokens, expected) << step;
    }
  }
}

TEST_F(Phases, AreInTheMetrics) {
  train_on(1, phased("metrics"));
  const std::vector<StepMetrics> rows = metrics("metrics");
  ASSERT_EQ(rows.size(), 18U);
  EXPECT_EQ(rows[5].phase, 1);
  EXPECT_EQ(rows[5].phase_name, "phase 1");
  EXPECT_EQ(rows[6].phase_name, "mixed");
  EXPECT_EQ(rows[11].phase_name, "long");
  EXPECT_EQ(rows[5].tokens, 6 * 8 * 32);
  EXPECT_EQ(rows[10].tokens, 6 * 8 * 32 + 5 * 12 * 32);
  EXPECT_EQ(rows[17].tokens, 6 * 8 * 32 + 5 * 12 * 32 + 7 * 8 * 64);
  // The first course has 11 steps and 4 of warm-up, the second 7 and none.
  EXPECT_DOUBLE_EQ(rows[3].lr, 1e-2);
  EXPECT_DOUBLE_EQ(rows[10].lr, 1e-3);
  EXPECT_DOUBLE_EQ(rows[17].lr, 1e-4);
  EXPECT_DOUBLE_EQ(rows[11].lr, 1e-3 - (1e-3 - 1e-4) / 7);
  EXPECT_EQ(rows[17].sources[0].tokens, 6 * 8 * 32 + 5 * 4 * 32);
  EXPECT_EQ(rows[17].sources[1].tokens, 5 * 8 * 32 + 7 * 8 * 64);
  for (const StepMetrics& row : rows) {
    EXPECT_EQ(row.held_out_loss.has_value(), row.step % 4 == 0 || row.step == 18);
    EXPECT_EQ(row.memory_bytes, rows[0].memory_bytes);
  }
  EXPECT_FALSE(rows[3].sources[1].held_out_loss);  // not of this phase
  EXPECT_TRUE(rows[7].sources[1].held_out_loss);
}

TEST_F(Phases, GiveTheirThetaToTheWeights) {
  train_on(1, phased("theta", {"train.stop_after=11"}));
  EXPECT_EQ(load_model(folder("theta"), 1).config.model.rope_theta, 500000);
  EXPECT_EQ(load_model(folder("theta"), 1).config.data.context, 32);
  train_on(1, phased("theta"), {.resume = true});
  EXPECT_EQ(load_model(folder("theta"), 1).config.model.rope_theta, 1e5);
  EXPECT_EQ(load_model(folder("theta"), 1).config.data.context, 64);
}

TEST_F(Phases, ThatAreTrainedMayNotChange) {
  train_on(1, phased("changed", {"train.stop_after=8"}));
  const auto problem = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"train.steps=18"};
    all.insert(all.end(), more.begin(), more.end());
    return error_of([&] { train_on(1, phased("changed", all), {.resume = true}); });
  };
  EXPECT_THAT(problem({"train.phases.0.global_batch=4"}),
              AllOf(HasSubstr("with train.phases.0.global_batch = 8, the configuration says 4"),
                    HasSubstr("only what is not trained yet may change")));
  EXPECT_THAT(problem({"train.phases.0.steps=5", "train.steps=17"}),
              HasSubstr("train.phases.0.steps = 6, the configuration says 5"));
  EXPECT_THAT(problem({"train.phases.0.rope_theta=2"}), HasSubstr("train.phases.0.rope_theta"));
  EXPECT_THAT(problem({"train.phases.0.sources=[\"data\", \"long\"]"}),
              HasSubstr("train.phases.0.sources = [data=1], the configuration says"));
  EXPECT_THAT(problem({"optimizer.learning_rate=0.02"}),
              HasSubstr("train.phases.0.learning_rate = 0.01, the configuration says 0.02"));
  EXPECT_THAT(problem({"train.phases.1.global_batch=16"}),
              HasSubstr("train.phases.1.global_batch = 12, the configuration says 16"));
  EXPECT_THAT(problem({"train.phases.1.steps=1", "train.steps=14"}),
              HasSubstr("the configuration ends mixed (train.phases.1.steps) after step 7"));
  // What is to come is free.
  const RunConfig other =
      phased("changed", {"train.phases.1.steps=3", "train.phases.2.context=16", "train.steps=17",
                         "train.phases.2.steps=8", "train.phases.2.rope_theta=3e4"});
  EXPECT_EQ(train_on(1, other, {.resume = true}).step, 17);
  EXPECT_EQ(metrics("changed").back().tokens, 6 * 8 * 32 + 3 * 12 * 32 + 8 * 8 * 16);
}

TEST_F(Phases, MayFollowARunThatHadNone) {
  const std::vector<std::string> phases{
      "train.phases=[{steps = 20}, {steps = 4, context = 16, micro_batch = 4, "
      "learning_rate = 1e-3}]",
      "train.steps=24"};
  train_on(1, config("longer"));
  EXPECT_EQ(train_on(1, config("longer", phases), {.resume = true}).step, 24);
  train_on(1, config("at_once", phases));
  EXPECT_TRUE(tensors("longer", 24) == tensors("at_once", 24));
}

TEST_F(Phases, ThatFailAtOnceSaveWhatWasBefore) {
  train_on(1, phased("good"));
  const fs::path shard = folder_->path() / "long" / "train-00000.npy";
  flip(shard);
  const std::string error = error_of([&] { train_on(1, phased("bad")); });
  flip(shard);
  EXPECT_THAT(error, HasSubstr("step 6 was saved"));
  EXPECT_EQ(train_on(1, phased("bad"), {.resume = true}).step, 18);
  EXPECT_TRUE(tensors("good", 18) == tensors("bad", 18));
}

TEST_F(Phases, SayWhichHasNoData) {
  EXPECT_THAT(
      error_of([&] { train_on(1, phased("none", {"train.phases.2.context=128"})); }),
      AllOf(HasSubstr("long (train.phases.2.context = 128): "), HasSubstr("was prepared with 64")));
}

}  // namespace
}  // namespace tessera
