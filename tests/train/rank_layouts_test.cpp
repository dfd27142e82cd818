// What a layout may change, and what not: resuming and evaluating under another one.
#include <chrono>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/evaluate_checkpoint.h"
#include "support/error_of.h"
#include "support/known_peak.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RankLayouts : public Ranks {
 protected:
  static void SetUpTestSuite() {
    Ranks::SetUpTestSuite();
    testing::write_known_peak(folder("hardware.json"));
  }
  /// On one thread.
  static RunConfig config(const std::string& run, std::vector<std::string> more) {
    more.emplace_back("run.threads=1");
    return Ranks::config(run, more);
  }
};

TEST_F(RankLayouts, AMixtureGoesOnOnlyWithTheSameSetsOfTokens) {
  const std::vector<std::string> layers{"model.experts=8", "model.experts_per_token=2",
                                        "model.expert_size=16", "model.feed_forward_size=0"};
  const auto resume = [&](const std::string& run, std::vector<std::string> keys, int ranks) {
    keys.insert(keys.end(), layers.begin(), layers.end());
    keys.emplace_back("train.stop_after=4");
    return train_on(ranks, config(run, keys), {.resume = true}).step;
  };
  const auto refusal = [&](const std::string& run, const std::vector<std::string>& keys,
                           int ranks) { return error_of([&] { resume(run, keys, ranks); }); };
  const auto begun = [&](const std::string& run, std::vector<std::string> keys) {
    keys.insert(keys.end(), layers.begin(), layers.end());
    keys.emplace_back("train.stop_after=2");
    train_on(2, config(run, keys));
  };
  const std::string balance = "model.balance_coefficient=0.01";
  begun("balanced", {balance});
  EXPECT_THAT(refusal("balanced", {balance}, 4),
              AllOf(HasSubstr("balance loss over 128 tokens"), HasSubstr("it would be 256"),
                    HasSubstr("micro-batches of 2 sequences"), HasSubstr("4 data-parallel ranks")));
  EXPECT_THAT(refusal("balanced", {balance, "train.micro_batch=4"}, 2),
              HasSubstr("it would be 256"));
  EXPECT_EQ(resume("balanced", {balance, "parallel.tensor=2"}, 4), 4);

  begun("shared", {"model.capacity_factor=1.5"});
  EXPECT_THAT(refusal("shared", {"model.capacity_factor=1.5"}, 1),
              AllOf(HasSubstr("capacity of its experts over 128"), HasSubstr("it would be 64")));
  EXPECT_EQ(resume("shared", {"model.capacity_factor=1.5", "train.micro_batch=4"}, 1), 4);

  const std::string own = "parallel.capacity_tokens=\"rank\"";
  begun("own", {"model.capacity_factor=1.5", own});
  EXPECT_THAT(refusal("own", {"model.capacity_factor=1.5", own, "parallel.tensor=2"}, 4),
              HasSubstr("over 64 tokens at a time, and here it would be 32"));
  EXPECT_EQ(resume("own", {"model.capacity_factor=1.5", own}, 4), 4);

  // Neither: nothing of a token depends on others but its loss.
  begun("free", {});
  EXPECT_EQ(resume("free", {"train.micro_batch=1"}, 4), 4);
}

TEST_F(RankLayouts, EvaluateACheckpointUnderALayoutOfTraining) {
  const std::vector<std::string> experts{"model.experts=8",         "model.experts_per_token=2",
                                         "model.expert_size=16",    "model.feed_forward_size=48",
                                         "model.dense_layers=1",    "model.shared_experts=1",
                                         "model.capacity_factor=1", "train.stop_after=10"};
  train_on(1, config("laid-out-dense", {"train.stop_after=10"}));
  train_on(1, config("laid-out-experts", experts));
  for (const std::string run : {"laid-out-dense", "laid-out-experts"}) {
    CheckpointEvaluationOptions options{.checkpoint = folder(run).string(), .threads = 1};
    const CheckpointEvaluation one = evaluate_checkpoint(options);
    const int64_t expert = run == "laid-out-experts" ? 2 : 1;
    for (const auto& [ranks, parallel] : std::vector<std::pair<int, ParallelSection>>{
             {2, {.tensor = 2}},
             {2, {.context = 2}},
             {2, {.expert = expert}},
             {4, {.tensor = 2, .expert = 2 * expert}},
             {8, {.tensor = 2, .context = 2, .expert = 4 * expert}},
             {8, {.tensor = 2, .expert = expert, .expert_rows_bound = 1}}}) {
      if (parallel.expert > 1 && expert == 1) continue;  // a dense model
      SCOPED_TRACE(fmt::format("{}: {} ranks, tensor {}, context {}, expert {}", run, ranks,
                               parallel.tensor, parallel.context, parallel.expert));
      options.ranks = ranks;
      options.parallel = parallel;
      const CheckpointEvaluation several = evaluate_checkpoint(options);
      EXPECT_NEAR(several.mean.loss / one.mean.loss, 1, 1e-12);
      EXPECT_EQ(several.mean.targets, one.mean.targets);
    }
    options.ranks = 4;
    options.parallel = {.tensor = 3};
    EXPECT_THAT(error_of([&] { evaluate_checkpoint(options); }),
                AllOf(HasSubstr("parallel.tensor (3)"), HasSubstr("--ranks (4)")));
    options.ranks = 8;
    options.parallel = {.tensor = 8};
    EXPECT_THAT(error_of([&] { evaluate_checkpoint(options); }),
                AllOf(HasSubstr("parallel.tensor (8)"), HasSubstr("model.heads (4)")));
  }
}

}  // namespace
}  // namespace tessera
