#include "config/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/mesh_of.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPhases = R"([data]
context = 64
[[data.sources]]
name = "web"
path = "data/web"
weight = 3
[[data.sources]]
name = "math"
path = "data/math"
[train]
micro_batch = 2
global_batch = 8
[optimizer]
learning_rate = 6e-4
minimum_learning_rate = 2e-4
warmup_steps = 5
[[train.phases]]
steps = 100
sources = ["web"]
[[train.phases]]
name = "math"
tokens = 25601
global_batch = 16
sources = ["web=1", "math = 2.5"]
[[train.phases]]
name = "long"
steps = 20
context = 256
micro_batch = 1
rope_theta = 1e6
learning_rate = 2e-4
minimum_learning_rate = 1.5e-4
)";

TEST(Phases, TakeFromTheSectionsWhatTheyDoNotName) {
  const RunConfig config = parse(kPhases);
  const std::vector<RunPhase> phases = phases_of(config);
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].name, "phase 1");
  EXPECT_EQ(phases[0].config.data.context, 64);
  EXPECT_EQ(phases[0].config.train.global_batch, 8);
  EXPECT_EQ(phases[0].config.model.rope_theta, config.model.rope_theta);
  EXPECT_EQ(phases[1].config.train.global_batch, 16);
  EXPECT_EQ(phases[1].config.train.micro_batch, 2);
  EXPECT_EQ(phases[2].config.data.context, 256);
  EXPECT_EQ(phases[2].config.train.micro_batch, 1);
  EXPECT_EQ(phases[2].config.train.global_batch, 8);
  EXPECT_EQ(phases[2].config.model.rope_theta, 1e6);
  for (const RunPhase& phase : phases) {
    // Nor is there memory left of a copy of the list, which would grow with its square.
    EXPECT_EQ(phase.config.train.phases.capacity(), 0U);
    EXPECT_TRUE(phase.config.given.empty());
  }
  EXPECT_TRUE(phases[0].same_programs(phases[1]));
  EXPECT_FALSE(phases[0].same_programs(phases[2]));
  EXPECT_FALSE(phases[0].same_work(phases[1])) << "their global batches differ";
  EXPECT_TRUE(phases[0].same_work(phases[0]));
}

TEST(Phases, FollowOneAnotherAndTokensAreRoundedUpToSteps) {
  const RunConfig config = parse(kPhases);
  const std::vector<RunPhase> phases = phases_of(config);
  // 25601 tokens in steps of 16 * 64 = 1024: 25.0009 steps.
  EXPECT_EQ(phases[0].first_step, 1);
  EXPECT_EQ(phases[0].last_step, 100);
  EXPECT_EQ(phases[1].first_step, 101);
  EXPECT_EQ(phases[1].last_step, 126);
  EXPECT_EQ(phases[2].last_step, 146);
  EXPECT_EQ(config.train.steps, 146);
  EXPECT_EQ(phases_of(parse(kPhases, {"train.phases.math.tokens=25600"}))[1].steps(), 25);
  EXPECT_EQ(phase_at(phases, 0), 0U);
  EXPECT_EQ(phase_at(phases, 100), 0U);
  EXPECT_EQ(phase_at(phases, 101), 1U);
  EXPECT_EQ(phase_at(phases, 146), 2U);
  EXPECT_EQ(phase_at(phases, 1000), 2U);
}

TEST(Phases, GoOnWithTheCourseOfTheLearningRateUnlessTheyBeginOne) {
  const std::vector<RunPhase> phases = phases_of(parse(kPhases));
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(phases[i].course_begin, 0);
    EXPECT_EQ(phases[i].config.train.steps, 126);
    EXPECT_EQ(phases[i].config.optimizer.learning_rate, 6e-4);
    EXPECT_EQ(phases[i].config.optimizer.warmup_steps, 5);
  }
  EXPECT_EQ(phases[2].course_begin, 126);
  EXPECT_EQ(phases[2].config.train.steps, 20);
  EXPECT_EQ(phases[2].config.optimizer.learning_rate, 2e-4);
  EXPECT_EQ(phases[2].config.optimizer.minimum_learning_rate, 1.5e-4);
  EXPECT_EQ(phases[2].config.optimizer.warmup_steps, 0);
  EXPECT_EQ(phases[2].config.optimizer.schedule, Schedule::cosine);
}

TEST(Phases, DrawFromTheSourcesThatTheyName) {
  const std::vector<RunPhase> phases = phases_of(parse(kPhases));
  const auto sources = [&](size_t phase) {
    std::vector<std::pair<std::string, double>> result;
    for (const SourceConfig& source : phases[phase].config.data.sources) {
      result.emplace_back(source.name, source.weight);
    }
    return result;
  };
  EXPECT_THAT(sources(0), ElementsAre(std::pair("web", 3.0)));
  EXPECT_THAT(sources(1), ElementsAre(std::pair("web", 1.0), std::pair("math", 2.5)));
  EXPECT_THAT(sources(2), ElementsAre(std::pair("web", 3.0), std::pair("math", 1.0)));
}

TEST(Phases, AreOneWithoutTables) {
  const RunConfig config = parse("[train]\nsteps = 70\n");
  const std::vector<RunPhase> phases = phases_of(config);
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].last_step, 70);
  EXPECT_EQ(to_toml(phases[0].config), to_toml(config));
  EXPECT_THAT(to_toml(config), Not(HasSubstr("phases")));
  EXPECT_EQ(parse(kPhases, {"train.phases=[]"}).train.steps, TrainSection().steps);
}

TEST(Phases, ReadBackFromWhatIsWritten) {
  const RunConfig config = parse(kPhases);
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(parse(text)), text);
  EXPECT_THAT(text, AllOf(HasSubstr("steps = 146"), HasSubstr("[[train.phases]]"),
                          HasSubstr("tokens = 25601"), Not(HasSubstr("left out"))));
}

TEST(Phases, AreReachedByOverrides) {
  EXPECT_EQ(parse(kPhases, {"train.phases.0.steps=10"}).train.steps, 56);
  EXPECT_EQ(parse(kPhases, {"train.phases.long.context=128"}).train.phases[2].context, 128);
  EXPECT_THAT(message_of(kPhases, {"train.phases.0.contxt=3"}),
              HasSubstr("unknown key 'contxt' in [[train.phases]]; did you mean 'context'?"));
}

/// What is wrong if a line is added to the second phase, or overrides are given.
std::string wrong(const std::vector<std::string>& overrides) {
  return message_of(kPhases, overrides);
}

TEST(Phases, SayWhichKeyIsWrong) {
  EXPECT_THAT(wrong({"train.phases.1.context=0"}),
              HasSubstr("train.phases.1.context: found 0; expected a whole number from 2"));
  EXPECT_THAT(wrong({"train.phases.1.steps=2"}),
              HasSubstr("train.phases.1.steps (2) and train.phases.1.tokens (25601) are both"));
  EXPECT_THAT(message_of("[[train.phases]]\nname = \"x\"\n"),
              HasSubstr("train.phases.0.steps and train.phases.0.tokens are both left out"));
  EXPECT_THAT(wrong({"train.phases.1.micro_batch=3"}),
              HasSubstr("train.phases.1.micro_batch (3) does not divide "
                        "train.phases.1.global_batch (16)"));
  EXPECT_THAT(wrong({"train.phases.2.micro_batch=5"}),
              HasSubstr("train.phases.2.micro_batch (5) does not divide train.global_batch (8)"));
  EXPECT_THAT(wrong({"model.max_context=128"}),
              HasSubstr("train.phases.2.context (256) is larger than model.max_context (128)"));
  EXPECT_THAT(wrong({"train.phases.2.minimum_learning_rate=1"}),
              HasSubstr("train.phases.2.minimum_learning_rate (1) is larger than "
                        "train.phases.2.learning_rate (0.0002)"));
  EXPECT_THAT(wrong({"train.phases.2.warmup_steps=21"}),
              HasSubstr("train.phases.2.warmup_steps (21) is more than the 20 steps"));
  EXPECT_THAT(wrong({"train.phases.2.sources=[\"wbe\"]"}),
              HasSubstr("train.phases.2.sources names the source \"wbe\"; expected one of "
                        "[[data.sources]]: web, math"));
  EXPECT_THAT(wrong({"train.phases.2.sources=[\"web=0\"]"}),
              HasSubstr("train.phases.2.sources: the weight of web is \"0\""));
  EXPECT_THAT(wrong({"train.phases.2.sources=[\"web\", \"web=2\"]"}),
              HasSubstr("names the source web twice"));
  EXPECT_THAT(wrong({"train.phases.2.sources=[\"web\"]", "train.phases.1.sources=[\"web\"]"}),
              HasSubstr("no phase draws from the source math"));
  EXPECT_THAT(wrong({"train.phases.0.name=long"}), HasSubstr("two of [[train.phases]] are named"));
  EXPECT_THAT(wrong({"train.phases.0.name=\"phase 2\"", "train.phases.1.name=\"\""}),
              HasSubstr("two of [[train.phases]] are named \"phase 2\""));
  EXPECT_THAT(wrong({"train.phases.0.name=\"\"", "train.phases.zz.steps=1"}),
              HasSubstr("there is no table zz in [[train.phases]], which has 3 (0, "));
  EXPECT_THAT(wrong({"train.phases.0.name=\"12\""}), HasSubstr("train.phases.0.name is \"12\""));
  EXPECT_THAT(wrong({"train.steps=100"}),
              HasSubstr("train.steps is 100, but the steps of [[train.phases]] add up to 146"));
  EXPECT_THAT(wrong({"train.stop_after=147"}), HasSubstr("train.stop_after (147)"));
}

TEST(Phases, DivideOverTheRanks) {
  EXPECT_THAT(error_of([] { mesh_of(parse(kPhases, {"train.phases.0.global_batch=6"}), 4); }),
              HasSubstr("train.micro_batch (2) * 4 data-parallel ranks is 8, which does not divide "
                        "train.phases.0.global_batch (6)"));
  EXPECT_THAT(error_of([] {
                mesh_of(parse(kPhases, {"train.phases.2.context=255", "parallel.tensor=2"}), 2);
              }),
              HasSubstr("train.phases.2.context (255) does not divide over"));
}

TEST(Phases, DecideWhatTheirWeightsAreUsedWith) {
  const RunConfig config = parse(kPhases);
  const RunConfig early = config_of_weights(config, 126);
  EXPECT_EQ(early.model.rope_theta, config.model.rope_theta);
  EXPECT_EQ(early.data.context, 64);
  const RunConfig late = config_of_weights(config, 127);
  EXPECT_EQ(late.model.rope_theta, 1e6);
  EXPECT_EQ(late.data.context, 256);
  const RunConfig shorter = config_of_weights(parse(kPhases, {"train.phases.1.context=512"}), 146);
  EXPECT_EQ(shorter.data.context, 512);
}

TEST(Phases, AreFoundByNameOrNumber) {
  const std::vector<RunPhase> phases = phases_of(parse(kPhases));
  EXPECT_EQ(find_phase(phases, "math"), 1U);
  EXPECT_EQ(find_phase(phases, "1"), 0U);
  EXPECT_THAT(error_of([&] { find_phase(phases, "4"); }),
              HasSubstr("there is no phase 4; the run has phase 1, math, long"));
}

}  // namespace
}  // namespace tessera
