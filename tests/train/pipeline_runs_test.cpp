// Runs whose ranks are the stages of pipelines: what one rank gives, bit for bit, and what other
// layouts give of their checkpoints.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "support/scattered_schedule.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

Keys joined(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

class PipelineRuns : public Ranks {
 protected:
  /// Six steps of four micro-batches of a model of eight layers.
  static RunConfig deep(const std::string& run, const Keys& more = {}) {
    return config(run,
                  joined({"model.layers=8", "model.hidden_size=16", "model.feed_forward_size=24",
                          "train.steps=6", "optimizer.warmup_steps=2", "checkpoint.every=0",
                          "train.evaluate_every=3", "train.evaluate_batches=4"},
                         more));
  }
  static RunConfig deep_mixture(const std::string& run, const Keys& more = {}) {
    return deep(run, joined({"model.experts=4", "model.experts_per_token=2", "model.expert_size=16",
                             "model.feed_forward_size=0", "model.balance_coefficient=0.01",
                             "model.balance_form=\"layer\""},
                            more));
  }
  /// The same losses, held-out losses and norms, and the same tensors in the same order.
  static void expect_same_bits(const std::string& expected, const std::string& found) {
    expect_same_training(metrics(found), metrics(expected), 0);
    EXPECT_TRUE(tensors(found, 6) == tensors(expected, 6)) << "other weights or moments";
  }
  /// Returns the path of a schedule of four stages and four micro-batches, whose chunks are on
  /// ranks in another order. Some of its backward passes are in halves.
  static std::string schedule_file() {
    return testing::write_scattered_schedule(folder_->path(), {1, 3, 0, 2},
                                             "I*.0 I*.1 W*.0 W*.1 B*.2 I*.3 W*.3");
  }
};

const std::string kFourStages = "parallel.pipeline=4";
const std::string kTied = "model.tied_head=true";
const std::string kSharedStates = "shard.optimizer=\"all\"";
const std::string kOfMuon = "optimizer.name=\"muon\"";
const Keys kZeroBubble{kFourStages, "parallel.schedule=\"zb-v\""};

TEST_F(PipelineRuns, HaveTheBitsOfOneRank) {
  train_on(1, deep("one"));
  const std::vector<std::pair<std::string, Keys>> schedules{
      {"default", {}},
      {"cut-by-hand", {"parallel.stage_layers=[0, 3, 5, 0]"}},
      {"interleaved", {"parallel.virtual_stages=2"}},
      {"zb-v", {"parallel.schedule=\"zb-v\""}},
      {"file", {"parallel.schedule=\"" + schedule_file() + "\""}}};
  for (const auto& [run, keys] : schedules) {
    SCOPED_TRACE(run);
    EXPECT_EQ(train_on(4, deep(run, joined(keys, {kFourStages}))).step, 6);
    expect_same_bits("one", run);
  }
  const std::vector<StepMetrics> steps = metrics("one");
  EXPECT_LT(steps.back().loss, steps.front().loss);
  EXPECT_TRUE(steps.back().held_out_loss.has_value());
}

TEST_F(PipelineRuns, OfMixturesHaveTheBitsOfOneRank) {
  train_on(1, deep_mixture("mixture"));
  const std::vector<StepMetrics> expected = metrics("mixture");
  for (const auto& [run, keys] : std::vector<std::pair<std::string, Keys>>{
           {"mixture-1f1b", {kFourStages}}, {"mixture-zb-v", kZeroBubble}}) {
    SCOPED_TRACE(run);
    train_on(4, deep_mixture(run, keys));
    expect_same_bits("mixture", run);
    const std::vector<StepMetrics> found = metrics(run);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].expert_load, expected[i].expert_load);
      EXPECT_NEAR(found[i].balance_loss.value() / expected[i].balance_loss.value(), 1, 1e-12);
    }
  }
}

/// The run is stopped after each step and goes on under the next layout, so that each of three
/// layouts loads what each other has saved.
TEST_F(PipelineRuns, GoOnUnderOtherLayouts) {
  struct Kind {
    std::string run;
    int ranks;  // of several; two data ranks share states out
    Keys keys;
  };
  const std::vector<Kind> kinds{{"tied", 4, {kTied}},
                                {"shared", 8, {kSharedStates, kTied}},
                                {"shared-muon", 8, {kSharedStates, kOfMuon}}};
  const Keys one, stages = kZeroBubble, both{"parallel.pipeline=2", "parallel.tensor=2"};
  const std::vector<Keys> course{stages, one, stages, both, one, both, stages};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.run);
    const Keys seven = joined(kind.keys, {"train.steps=7", "train.evaluate_every=0"});
    train_on(1, deep("unbroken-" + kind.run, seven));
    for (size_t i = 0; i < course.size(); ++i) {
      const std::string stop = fmt::format("train.stop_after={}", i + 1);
      train_on(course[i].empty() ? 1 : kind.ranks,
               deep(kind.run, joined(joined(seven, course[i]), {stop})), {.resume = i > 0});
    }
    expect_same_training(metrics(kind.run), metrics("unbroken-" + kind.run), 1e-10);
  }
}

TEST_F(PipelineRuns, GoOnBitForBit) {
  const std::vector<std::pair<int, Keys>> layouts{
      {4, joined(kZeroBubble, {kTied})},
      {8, {"parallel.pipeline=2", "parallel.tensor=2", kSharedStates, "train.precision=\"bf16\""}},
      {4, {"parallel.pipeline=2", "train.micro_batch=1", kSharedStates, kOfMuon}}};
  int number = 0;
  for (const auto& [ranks, keys] : layouts) {
    const std::string straight = fmt::format("straight-{}", ++number);
    const std::string stopped = fmt::format("stopped-{}", number);
    SCOPED_TRACE(straight);
    train_on(ranks, deep(straight, keys));
    train_on(ranks, deep(stopped, joined(keys, {"train.stop_after=2"})));
    train_on(ranks, deep(stopped, keys), {.resume = true});
    expect_same_bits(straight, stopped);
  }
}

/// Two stages hold a tied head's table, and the first writes it. The manifest has the tensors in
/// the model's order, whichever rank has written them.
TEST_F(PipelineRuns, SaveEachTensorOnceInTheModelsOrder) {
  const auto stopped = [](const std::string& run, const Keys& keys) {
    return deep(run, joined(keys, {kTied, "train.stop_after=1"}));
  };
  train_on(1, stopped("saved", {}));
  const CheckpointReader one(checkpoint("saved", 1));
  const std::vector<CheckpointTensor>& expected = one.manifest().tensors;
  const std::vector<std::pair<int, Keys>> layouts{
      {4, {kFourStages}}, {4, kZeroBubble}, {8, joined(kZeroBubble, {kSharedStates})}};
  int number = 0;
  for (const auto& [ranks, keys] : layouts) {
    const std::string run = fmt::format("saved-{}", ++number);
    SCOPED_TRACE(run);
    train_on(ranks, stopped(run, keys));
    const CheckpointReader reader(checkpoint(run, 1));
    const std::vector<CheckpointTensor>& found = reader.manifest().tensors;
    ASSERT_EQ(found.size(), expected.size());
    std::set<std::string> files;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].label(), expected[i].label());
      EXPECT_EQ(found[i].shape, expected[i].shape);
      int64_t elements = 0;
      for (const SavedPiece& piece : found[i].pieces) {
        elements += piece.region.elements();
        files.insert(piece.file);
      }
      EXPECT_EQ(elements, found[i].shape.elements()) << found[i].label();
    }
    EXPECT_EQ(std::ssize(files), 2 * ranks) << "each rank writes parameters and moments";
  }
  const auto is_table = [](const CheckpointTensor& tensor) {
    return tensor.group == "parameters" && tensor.shape.elements() >= 260 * 16;
  };
  EXPECT_EQ(std::ranges::count_if(expected, is_table), 1);
}

}  // namespace
}  // namespace tessera
