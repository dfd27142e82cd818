#include "config/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/mesh_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// What is said of a run with these overrides.
std::vector<std::string> warnings_of(const std::vector<std::string>& overrides, int ranks = 1) {
  const RunConfig config = parse("[model]\nvocabulary_size = 64", overrides);
  return config_warnings(config, mesh_of(config, ranks));
}

TEST(Warnings, NameAStepThatLearnsNothing) {
  const std::string to_zero = "optimizer.minimum_learning_rate=0";
  const std::string constant = "optimizer.schedule=constant";
  EXPECT_THAT(warnings_of({"train.steps=1", "optimizer.warmup_steps=0", to_zero}),
              ElementsAre(HasSubstr("nothing is learned in step 1")));
  EXPECT_THAT(warnings_of({R"(train.phases=[{steps=30, name="x"}, {steps=1, schedule="linear"}])",
                           to_zero}),
              ElementsAre(HasSubstr("nothing is learned in step 31")));
  EXPECT_THAT(warnings_of({"train.steps=1", "optimizer.warmup_steps=1"}), IsEmpty());
  EXPECT_THAT(warnings_of({"train.steps=1", "optimizer.warmup_steps=0", constant}), IsEmpty());
  EXPECT_THAT(warnings_of({"train.steps=2", "optimizer.warmup_steps=0", to_zero}), IsEmpty());
}

/// What is said of 4 stages on each of two data-parallel ranks.
std::vector<std::string> warnings_of_stages(const std::string& schedule, int micro_batches,
                                            const std::vector<std::string>& sharded,
                                            const std::string& more = "run.trace_step=0") {
  std::vector<std::string> overrides{"model.family=llama",
                                     "model.layers=8",
                                     "parallel.pipeline=4",
                                     "parallel.schedule=" + schedule,
                                     "train.micro_batch=1",
                                     "train.global_batch=" + std::to_string(2 * micro_batches),
                                     more};
  for (const std::string& key : sharded) overrides.push_back("shard." + key + "=all");
  return warnings_of(overrides, 8);
}

/// Llama 3 section 3.1.3: ZeRO-1 with 1F1B from twice as many micro-batches as stages on, and
/// ZeRO-2 with all-forward-all-backward below. In its figure 4, the latter is the same with ZeRO-1.
TEST(Warnings, NameABetterScheduleForWhatIsSharded) {
  const std::vector<std::string> zero_1{"optimizer"};
  const std::vector<std::string> zero_2{"optimizer", "gradients"};
  const std::string interleaved = "parallel.virtual_stages=2";

  EXPECT_THAT(warnings_of_stages("1f1b", 8, zero_1), IsEmpty());
  EXPECT_THAT(warnings_of_stages("1f1b", 7, zero_1),
              ElementsAre(AllOf(
                  HasSubstr("train.global_batch (14) is 7 micro-batches a step for 4 pipeline"),
                  HasSubstr("sets parallel.schedule = \"gpipe\" and shard.gradients = \"all\" "
                            "where there are fewer than twice as many as stages"))));
  EXPECT_THAT(warnings_of_stages("1f1b", 7, zero_2),
              ElementsAre(AllOf(HasSubstr("\"gpipe\""), Not(HasSubstr("shard.gradients")))));
  EXPECT_THAT(warnings_of_stages("1f1b", 8, zero_2),
              ElementsAre(AllOf(HasSubstr("sets shard.gradients = \"none\" where there are at "
                                          "least twice"),
                                Not(HasSubstr("parallel.schedule")))));
  EXPECT_THAT(warnings_of_stages("gpipe", 8, zero_1),
              ElementsAre(AllOf(HasSubstr("\"1f1b\""), Not(HasSubstr("shard.gradients")))));
  EXPECT_THAT(warnings_of_stages("gpipe", 8, zero_2),
              ElementsAre(HasSubstr("\"1f1b\" and shard.gradients = \"none\"")));
  EXPECT_THAT(warnings_of_stages("gpipe", 8, zero_2, interleaved),
              ElementsAre(HasSubstr("\"interleaved\"")));
  EXPECT_THAT(warnings_of_stages("interleaved", 4, zero_1, interleaved),
              ElementsAre(HasSubstr("\"gpipe\"")));
}

TEST(Warnings, NameNoScheduleWhereNoneIsBetter) {
  EXPECT_THAT(warnings_of_stages("gpipe", 7, {"optimizer"}), IsEmpty());
  EXPECT_THAT(warnings_of_stages("gpipe", 7, {"optimizer", "gradients"}), IsEmpty());
  EXPECT_THAT(warnings_of_stages("gpipe", 8, {}), IsEmpty());
  EXPECT_THAT(warnings_of_stages("gpipe", 8, {"optimizer", "gradients", "weights"}), IsEmpty());
  EXPECT_THAT(warnings_of_stages("zb-h1", 4, {"optimizer"}), IsEmpty());
}

/// A group of one rank cuts nothing. The plain sharded optimizer does not cut gradients.
TEST(Warnings, NameNoKeyThatHasNoEffectOrIsRefused) {
  EXPECT_THAT(warnings_of_stages("1f1b", 8, {"optimizer"}, "parallel.levels=[4]"), IsEmpty());
  std::vector<std::string> overrides{"model.family=llama", "model.layers=8", "parallel.pipeline=4",
                                     "train.micro_batch=1", "train.global_batch=4"};
  EXPECT_THAT(warnings_of(overrides, 4), IsEmpty());
  overrides.emplace_back("shard.optimizer=all");
  EXPECT_THAT(warnings_of(overrides, 4), ElementsAre(HasSubstr("shard.optimizer has no effect")));
  EXPECT_THAT(warnings_of_stages("gpipe", 9, {"optimizer"}, "parallel.virtual_stages=2"),
              ElementsAre(HasSubstr("\"flexible\"")));
  overrides = {"model.family=olmoe",  "model.layers=8",          "parallel.pipeline=4",
               "parallel.expert=2",   "train.micro_batch=1",     "train.global_batch=16",
               "shard.optimizer=all", "shard.expert_aware=false"};
  EXPECT_THAT(warnings_of(overrides, 16),
              ElementsAre(AllOf(HasSubstr("\"gpipe\""), Not(HasSubstr("shard.gradients")))));
}

/// Only the second phase has too few micro-batches.
TEST(Warnings, NameThePhaseWithTheBetterSchedule) {
  EXPECT_THAT(warnings_of_stages("1f1b", 8, {"optimizer"},
                                 "train.phases=[{steps=30}, {steps=2, global_batch=8}]"),
              ElementsAre(HasSubstr("train.phases.1.global_batch (8) is 4 micro-batches")));
  EXPECT_THAT(warnings_of_stages("1f1b", 4, {"optimizer"},
                                 "train.phases=[{steps=30}, {steps=2}, {steps=3}]"),
              ElementsAre(HasSubstr("train.global_batch (8) is 4 micro-batches")));
}

}  // namespace
}  // namespace tessera
