#include "inference/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/usable_memory.h"
#include "inference/evaluate_checkpoint.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "support/small_model.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SmallModel;

TEST(Evaluate, ABatchIsNoLargerThanTheInstancesAtHand) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const TrainingData data =
      open_data({.directory = (folder.path() / "data").string(), .context = 32});
  const int64_t all = data.sources.front().instances->instances(Split::held_out);
  ASSERT_GT(all, 3);
  EXPECT_EQ(evaluation_rows(data, 2, 0), 2);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 0), all);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 3), 3);
  EXPECT_EQ(evaluation_rows(data, 2, 3), 2);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 1 << 30), all);
}

TEST(Evaluate, WhatDoesNotFitTheMachineIsRefusedBeforeItIsTaken) {
  SmallModel small(257);
  const ModelConfig& config = small.model.config.model;
  const auto require_memory = [&](const ProgramSize& size) {
    require_evaluation_memory(write_evaluation(config, DType::f32, size), small.model.weights,
                              small.model.weights, size, small.runtime);
  };
  EXPECT_NO_THROW(require_memory({8, 32}));
  const auto refusal_of = [&](int64_t rows, int64_t context) {
    return error_of([&] { require_memory({rows, context}); });
  };
  EXPECT_THAT(refusal_of(1 << 30, 4096),
              AllOf(HasSubstr("1073741824 sequences of 4096 tokens at once take "),
                    HasSubstr("lower --batch")));
  // What fits by its largest value alone, and not with all that is there beside it.
  const int64_t rows = usable_memory().bytes / (2 * 16 * 4);  // of half the memory in hidden values
  EXPECT_THAT(refusal_of(rows, 1), HasSubstr("sequences of 1 tokens at once take "));
}

TEST(Evaluate, ReportsSayThatNothingIsDropped) {
  CheckpointEvaluation report{.checkpoint = "run"};
  EXPECT_THAT(report.text(), Not(HasSubstr("dropped")));
  EXPECT_FALSE(nlohmann::json::parse(report.json()).contains("dropped_tokens"));
  report.capacity_factor = 1.25;
  EXPECT_THAT(report.text(), HasSubstr("no token was dropped: model.capacity_factor (1.25)"));
  EXPECT_EQ(nlohmann::json::parse(report.json())["dropped_tokens"], 0);
}

TEST(Evaluate, ATokenThatTheModelHasNotIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const TrainingData data =
      open_data({.directory = (folder.path() / "data").string(), .context = 32});
  SmallModel small('w');  // the text has w, x, y
  StandaloneEvaluator evaluator(write_evaluation(small.model.config.model, DType::f32, {2, 32}),
                                small.model.weights, small.runtime);
  EXPECT_THAT(error_of([&] { evaluate_sources(*evaluator, data, 2, 0); }),
              AllOf(HasSubstr("held_out-00000.npy: token "),
                    HasSubstr("but the model has a vocabulary of 119")));
}

}  // namespace
}  // namespace tessera
