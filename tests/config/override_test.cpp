#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Override, ReplacesWhatTheFileSays) {
  const RunConfig config =
      parse("[train]\nsteps = 40\n", {"train.steps=50", "optimizer.learning_rate=1e-3"});
  EXPECT_EQ(config.train.steps, 50);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
}

TEST(Override, TheLastOneWins) {
  EXPECT_EQ(parse("", {"train.seed=3", "train.seed=4"}).train.seed, 4u);
}

TEST(Override, TakesBareWordsAsTexts) {
  EXPECT_EQ(parse("", {"run.directory=runs/a-1.b"}).run.directory, "runs/a-1.b");
  EXPECT_EQ(parse("", {"train.precision=fp32"}).train.precision, Precision::fp32);
  EXPECT_EQ(parse("", {"run.directory=\"my runs/1\""}).run.directory, "my runs/1");
}

TEST(Override, TakesListsAndFlags) {
  const RunConfig config =
      parse("", {"train.recompute=[\"norm\", 'experts']", "model.tied_head=true"});
  EXPECT_EQ(config.train.recompute, (std::vector{RecomputedBlock::norm, RecomputedBlock::experts}));
  EXPECT_TRUE(config.model.tied_head);
}

TEST(Override, TheFamilyComesBeforeTheFilesKeys) {
  const RunConfig config = parse("[model]\nlayers = 5\nfamily = 'olmoe'\n", {"model.family=llama"});
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_EQ(config.model.layers, 5);
  EXPECT_EQ(config.model.hidden_size, 4096);
}

TEST(Override, IsCheckedLikeTheFile) {
  EXPECT_EQ(message_of("", {"train.step=3"}),
            "override train.step=3: unknown key 'step' in [train]; did you mean 'steps'?");
  EXPECT_THAT(message_of("", {"train.steps=abc"}),
              HasSubstr("found \"abc\"; expected a whole number from 1 to 1099511627776"));
  EXPECT_THAT(message_of("", {"trian.steps=3"}), HasSubstr("did you mean [train]?"));
  EXPECT_THAT(message_of("", {"train.steps.x=3"}), HasSubstr("unknown key 'steps.x'"));
}

TEST(Override, SaysItsFormWhenItHasAnother) {
  for (const char* wrong : {"steps", "steps=3", "train.steps", ".steps=3", "train.=3", "=", ""}) {
    EXPECT_THAT(message_of("", {wrong}),
                AllOf(HasSubstr(std::string("the override '") + wrong + "'"),
                      HasSubstr("section.key=VALUE, such as train.steps=100")));
  }
  for (const char* wrong : {"train.steps=", "train.steps=[1", "train.steps=1 2",
                            "train.steps=1\nseed=2", "run.directory=my runs"}) {
    EXPECT_THAT(message_of("", {wrong}), HasSubstr("has no value that TOML knows after the '='"));
  }
}

TEST(Override, IsNotRepeatedWholeWhenItIsLong) {
  std::string parts = "model";
  for (int i = 0; i < 5000; ++i) parts += ".a";
  for (const std::string& wrong : {parts, parts + "=1", "model." + parts + "=1", parts + "=[",
                                   "model.layers=" + parts, parts.substr(6) + ".b=1"}) {
    const std::string message = message_of("", {wrong});
    EXPECT_THAT(message, HasSubstr("override"));
    EXPECT_LT(message.size(), 2000U) << message;
  }
}

}  // namespace
}  // namespace tessera
