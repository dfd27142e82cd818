// The commands that take --ranks, on the demo's model with eight ranks that share its tensors, its
// experts and its data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/program.h"
#include "metrics/metrics.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Result = testing::ProgramResult;
using testing::Arguments;
using testing::joined;
using testing::occurrences;

constexpr int64_t kContext = 16;

class RanksCommandTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::prepare_small_data(folder_.path(), kContext); }

  /// Runs a command with the demo's file. Only what makes a run long is smaller.
  Result run(const std::string& command, const Arguments& more) const {
    Arguments arguments{command, std::string(TESSERA_SOURCE) + "/configs/demo.toml"};
    for (const std::string& key :
         {fmt::format("data.directory=\"{}\"", (folder_ / "data").string()),
          fmt::format("data.context={}", kContext), std::string("model.layers=2"),
          std::string("train.global_batch=4"), std::string("train.micro_batch=1"),
          std::string("train.precision=\"fp64\""), std::string("train.steps=2"),
          std::string("train.evaluate_every=2"), std::string("optimizer.warmup_steps=1"),
          std::string("run.trace_step=0"), fmt::format("run.threads={}", testing::two_threads()),
          fmt::format("run.hardware=\"{}\"", (folder_ / "hardware.json").string())}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_program(folder_, arguments);
  }
  /// Explains, as JSON. The peak's file has no times of collectives, which a warning would say.
  Json explained(const Arguments& more) const {
    const Arguments without_warning{"--json", "--set", "run.hardware=\"\""};
    return Json::parse(run("explain", joined(more, without_warning)).output);
  }
  std::string directory(const std::string& name) const {
    return fmt::format("run.directory=\"{}\"", (folder_ / name).string());
  }
  std::vector<StepMetrics> metrics(const std::string& run) const {
    return read_metrics(folder_ / run / "metrics.jsonl");
  }

  /// 2 tensor x 4 data, 4 expert: a micro-batch of all ranks has four sequences.
  const Arguments eight_{"--ranks", "8",
                         "--set",   "parallel.tensor=2",
                         "--set",   "parallel.expert=4",
                         "--set",   "train.micro_batch=1",
                         "--set",   "train.evaluate_batches=4"};
  const Arguments one_{"--set", "train.micro_batch=4", "--set", "train.evaluate_batches=1"};
  TemporaryFolder folder_;
};

TEST_F(RanksCommandTest, EightRanksTrainTheDemosModelToTheLossesOfOne) {
  const Result one = run("train", joined(one_, {"--set", directory("one")}));
  ASSERT_EQ(one.status, 0) << one.output;
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    const Arguments by{"--set", directory(exchange), "--set",
                       "parallel.expert_exchange=\"" + exchange + "\""};
    const Result eight = run("train", joined(eight_, by));
    ASSERT_EQ(eight.status, 0) << eight.output;
    EXPECT_THAT(eight.output, HasSubstr("8 ranks (2 tensor x 4 data, 4 expert)"));
    EXPECT_EQ(occurrences(eight.output, "active a token"), 1U) << "one log";
    EXPECT_EQ(occurrences(eight.output, "saved"), occurrences(one.output, "saved"));
    const std::vector<StepMetrics> of_eight = metrics(exchange), of_one = metrics("one");
    ASSERT_EQ(of_eight.size(), 2U);
    ASSERT_EQ(of_one.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      const StepMetrics &a = of_eight[i], &b = of_one[i];
      EXPECT_NEAR(a.loss / b.loss, 1, 1e-10) << "step " << a.step;
      EXPECT_NEAR(a.grad_norm / b.grad_norm, 1, 1e-10);
      EXPECT_NEAR(*a.balance_loss / *b.balance_loss, 1, 1e-10);
      EXPECT_EQ(a.expert_load, b.expert_load);
      EXPECT_EQ(a.tokens, b.tokens);
    }
    EXPECT_NEAR(*of_eight.back().held_out_loss / *of_one.back().held_out_loss, 1, 1e-10);
  }
}

TEST_F(RanksCommandTest, VerifySaysThatTheyAreTheSameModel) {
  const Result text = run("verify", joined(eight_, {"--steps", "1"}));
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("2 tensor x 4 data, 4 expert"),
                                 HasSubstr("the layout computes the same model")));
  const Result json = run("verify", joined(eight_, {"--steps", "1", "--full", "--json"}));
  EXPECT_EQ(json.status, 0);
  const Json found = Json::parse(json.output.substr(json.output.find('{')));
  EXPECT_EQ(found["same"], true);
  EXPECT_EQ(found["ranks"], 8);
  EXPECT_EQ(found["cut"], "");
  EXPECT_TRUE(found["first_difference"].is_null());
}

/// Stages change no bit of what one rank computes, in the run's precision as well.
TEST_F(RanksCommandTest, VerifySaysThatStagesOfAPipelineAreTheSameModel) {
  const Result result =
      run("verify", {"--ranks", "2", "--set", "parallel.pipeline=2", "--steps", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const Json found = Json::parse(result.output.substr(result.output.find('{')));
  EXPECT_EQ(found["passed"], true);
  EXPECT_EQ(found["layout"], "2 pipeline");
  EXPECT_EQ(found["bits_in_the_layouts_order"].value("same", false), true) << result.output;
}

TEST_F(RanksCommandTest, ExplainSaysWhatOneOfThemHoldsComputesAndSends) {
  const Result text = run("explain", joined(eight_, {"--rank", "3", "--types"}));
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("rank 3 of 8 (2 tensor x 4 data, 4 expert)"),
                    HasSubstr("expert: sharded (dim 0, even)"), HasSubstr("reduce_scatter"),
                    HasSubstr("sent a step over expert"),
                    HasSubstr("split stays: t, o0; split leaves a sum: i; may be a sum: operand 1 "
                              "or 2")));
  const Json json = explained(eight_);
  int64_t elements = 0;
  for (const Json& held : json["held"]) {
    if (held["name"] == "layers.0.experts.gate") {
      EXPECT_EQ(held["whole"], "[16, 128, 256]");
      EXPECT_EQ(held["here"], "[4, 128, 256]");
      EXPECT_THAT(held["main_gradient"].get<std::string>(), HasSubstr("expert_data: partial"));
      ++elements;
    }
    if (held["name"] == "layers.0.attention.query") {
      EXPECT_EQ(held["whole"], "[256, 256]");
      EXPECT_EQ(held["here"], "[128, 256]");
      EXPECT_THAT(held["main_gradient"].get<std::string>(), HasSubstr("data: partial"));
      ++elements;
    }
  }
  EXPECT_EQ(elements, 2);
}

TEST_F(RanksCommandTest, ExplainShowsTheStagesOfAPipelineAndDrawsItsSchedule) {
  const std::string picture = (folder_ / "schedule.svg").string();
  const Arguments stages{"--ranks", "2", "--set", "parallel.pipeline=2"};
  const Result text = run("explain", joined(stages, {"--svg", picture}));
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("embedding, layer 0"), HasSubstr("layer 1, head"),
                                 HasSubstr("schedule 1f1b, 4 micro-batches: bubble 25.0 %")));
  EXPECT_THAT(read_file(picture), AllOf(HasSubstr("<svg"), HasSubstr("1f1b: 2 ranks")));
  const Json json = explained(stages);
  const Json second = explained(joined(stages, {"--rank", "1"}))["totals"];
  ASSERT_EQ(json["pipeline"]["stages"].size(), 2U);
  EXPECT_EQ(json["pipeline"]["stages"][0]["peak_bytes"], json["totals"]["peak_bytes"]);
  EXPECT_EQ(json["pipeline"]["stages"][1]["peak_bytes"], second["peak_bytes"]);
  EXPECT_EQ(json["pipeline"]["stages"][1]["parameters"], second["parameters_on_rank"]);

  const Result balanced =
      run("explain", joined(stages, {"--set", "parallel.stage_layers=\"balanced\""}));
  EXPECT_THAT(balanced.output,
              ContainsRegex("parallel.stage_layers = \"balanced\" is \\[[0-2], [0-2]\\]"));

  fs::remove(picture);
  const Result whole = run("explain", joined(one_, {"--svg", picture}));
  EXPECT_EQ(whole.status, 1);
  EXPECT_THAT(whole.output, AllOf(HasSubstr("--svg"), HasSubstr("parallel.pipeline"),
                                  HasSubstr("the model is in one chunk")));
  EXPECT_FALSE(fs::exists(picture));
  EXPECT_THAT(run("explain", joined(stages, {"--svg", "schedule.png"})).output,
              HasSubstr("a file that ends in .svg"));
}

TEST_F(RanksCommandTest, WhatDoesNotDivideIsAnErrorThatNamesTheNumbersAndLeavesNothing) {
  const std::string key = directory("refused");
  for (const auto& [arguments, words] : std::vector<std::pair<Arguments, Arguments>>{
           {{"--ranks", "3", "--set", "parallel.tensor=2"}, {"parallel.tensor", "2", "3"}},
           {{"--ranks", "8", "--set", "parallel.tensor=8", "--set", "train.micro_batch=1"},
            {"heads", "4", "8"}},
           {{"--ranks", "6", "--set", "parallel.expert=4"}, {"parallel.expert", "4", "6"}},
           {{"--ranks", "0"}, {"--ranks"}},
           {{"--ranks", "3"}, {"global_batch", "4", "3"}}}) {
    const Result result = run("train", joined(arguments, {"--set", key}));
    EXPECT_NE(result.status, 0) << result.output;
    for (const std::string& word : words) EXPECT_THAT(result.output, HasSubstr(word));
    EXPECT_THAT(result.output, Not(HasSubstr("internal")));
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  }
}

}  // namespace
}  // namespace tessera
