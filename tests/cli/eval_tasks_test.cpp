#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/hugging_face_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Result = testing::ProgramResult;

/// `eval --tasks` with an imported model.
class EvalTasks : public ::testing::Test {
 protected:
  EvalTasks() {
    testing::HuggingFaceFolder source(folder_ / "source", testing::small_olmoe_config(),
                                      DType::f32);
    source.write();
    write_file(folder_ / "source/tokenizer.json", "{\"kind\": \"bytes\"}");
    write_file(folder_ / "first.jsonl",
               R"({"context": "One and", "choices": ["two", "2"], "answer": 1})"
               "\n"
               R"({"context": "Two and", "choices": ["a", "bc", "def"], "answer": "C"})"
               "\n");
    write_file(folder_ / "second.jsonl",
               R"({"context": ["x", "y"], "choices": ["z", "z"], "answer": 0})"
               "\n");
    EXPECT_EQ(run({"checkpoint", "import", path("source"), "--output", path("model"), "--precision",
                   "fp32", "--quiet"})
                  .status,
              0);
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  Result eval(std::vector<std::string> more) const {
    more.insert(more.begin(), {"eval", "--checkpoint", path("model")});
    return run(std::move(more));
  }

  TemporaryFolder folder_;
};

TEST_F(EvalTasks, TheScoresAreThoseOfThePredictions) {
  const Result result = eval({"--tasks", path("first.jsonl"), path("second.jsonl"), "--json",
                              "--predictions", path("predictions.jsonl")});
  ASSERT_EQ(result.status, 0) << result.output;
  // Progress stands on standard error, in lines before the object.
  const auto json = nlohmann::json::parse(result.output.substr(result.output.rfind("{\"check")));
  ASSERT_EQ(json["tasks"].size(), 2U);
  EXPECT_EQ(json["tasks"][0]["task"], "first");
  EXPECT_EQ(json["tasks"][0]["questions"], 2);
  EXPECT_EQ(json["tasks"][1]["task"], "second");

  std::istringstream lines(read_file(folder_ / "predictions.jsonl"));
  std::map<std::string, double> right;
  std::map<std::string, double> right_normalised;
  size_t questions = 0;
  for (std::string line; std::getline(lines, line); ++questions) {
    const auto prediction = nlohmann::json::parse(line);
    const auto scores = prediction["log_likelihoods"].get<std::vector<double>>();
    EXPECT_EQ(scores.size(), questions == 1 ? 3U : 2U);
    for (const double score : scores) EXPECT_LT(score, 0);
    const auto best = std::ranges::max_element(scores) - scores.begin();
    EXPECT_EQ(prediction["chosen"], best);
    const std::string task = prediction["task"];
    right[task] += prediction["chosen"] == prediction["answer"] ? 1 : 0;
    right_normalised[task] += prediction["chosen_normalised"] == prediction["answer"] ? 1 : 0;
  }
  EXPECT_EQ(questions, 3U);
  double sum = 0;
  for (const auto& task : json["tasks"]) {
    const double count = task["questions"];
    EXPECT_DOUBLE_EQ(task["accuracy"], right[task["task"]] / count);
    EXPECT_DOUBLE_EQ(task["accuracy_normalised"], right_normalised[task["task"]] / count);
    sum += task["accuracy"].get<double>();
  }
  EXPECT_DOUBLE_EQ(json["average_accuracy"], sum / 2);
}

TEST_F(EvalTasks, ATableNamesEveryTaskAndTheAverage) {
  const Result result = eval({"--tasks", path("first.jsonl"), path("second.jsonl")});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("length-normalised (%)"), HasSubstr("\nfirst "),
                                   HasSubstr("\nsecond "), HasSubstr("\naverage ")));
}

TEST_F(EvalTasks, ErrorsSayWhatToDo) {
  write_file(folder_ / "wrong.jsonl", R"({"context": "c", "choices": ["a", "b"], "answer": 2})");
  const Result wrong = eval({"--tasks", path("wrong.jsonl")});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, AllOf(HasSubstr("wrong.jsonl:1"), HasSubstr("\"answer\" is 2")));
  EXPECT_NE(eval({"--predictions", path("p")}).status, 0);
  EXPECT_THAT(
      eval({"--tasks", path("first.jsonl"), "--predictions", path("missing/p.jsonl")}).output,
      AllOf(HasSubstr("there is no folder"), ::testing::Not(HasSubstr("accuracy"))));
  fs::create_directory(path("other"));
  fs::copy(path("first.jsonl"), path("other/first.jsonl"));
  EXPECT_THAT(eval({"--tasks", path("first.jsonl"), path("other/first.jsonl")}).output,
              HasSubstr("both give their questions the task first"));
  EXPECT_THAT(eval({"--tasks", path("first.jsonl"), "--data", path("data")}).output,
              HasSubstr("excludes"));
}

}  // namespace
}  // namespace tessera
