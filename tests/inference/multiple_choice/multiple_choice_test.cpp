#include "inference/multiple_choice/multiple_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/byte_tokenizer.h"
#include "inference/multiple_choice/log_likelihood.h"
#include "model/model.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "support/error_of.h"
#include "support/reference_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing::ReferenceTensors;

/// The model of tests/reference/multiple_choice.py.
LoadedModel reference_model(const ReferenceTensors& reference) {
  LoadedModel model;
  ModelConfig& config = model.config.model;
  config = family_preset(Family::olmoe);
  config.layers = 2;
  config.hidden_size = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_size = 8;
  config.vocabulary_size = 257;
  model.config.data.context = 256;
  model.config.train.precision = Precision::fp32;
  model.tokenizer = std::make_unique<ByteTokenizer>();
  model.parameters = model_parameters(config, DType::f32);
  model.weights = unit_tensors(model.parameters);
  for (size_t i = 0; i < model.parameters.specs().size(); ++i) {
    const ParameterSpec& spec = model.parameters.specs()[i];
    std::vector<float> values = reference.f32("initial/" + spec.name);
    model.weight(i).copy_from(Tensor::wrap(values.data(), spec.shape, DType::f32));
  }
  return model;
}

/// The fixture with the model in memory.
struct QuestionMachine {
  ReferenceTensors reference{"multiple_choice"};
  LoadedModel model = reference_model(reference);
  Runtime runtime{host_target(2)};
  std::vector<Question> questions =
      read_questions(ReferenceTensors::path("multiple_choice") / "questions.jsonl");
};

std::vector<double> all_scores(const std::vector<ScoredQuestion>& scored) {
  std::vector<double> scores;
  for (const ScoredQuestion& question : scored) {
    scores.insert(scores.end(), question.log_likelihoods.begin(), question.log_likelihoods.end());
  }
  return scores;
}

TEST(MultipleChoice, ScoresAreThoseOfTransformers) {
  QuestionMachine machine;
  const auto scored = score_questions(machine.model, machine.questions, {}, machine.runtime);
  const std::vector<double> scores = all_scores(scored);
  const std::vector<float> expected = machine.reference.f32("log_likelihoods");
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(scores[i], expected[i], 1e-5 * std::abs(expected[i])) << i;
  }
  std::vector<int32_t> chosen;
  std::vector<int32_t> normalised;
  for (const ScoredQuestion& question : scored) {
    chosen.push_back(static_cast<int32_t>(question.chosen));
    normalised.push_back(static_cast<int32_t>(question.chosen_normalised));
  }
  EXPECT_THAT(chosen, ElementsAreArray(machine.reference.i32("chosen")));
  EXPECT_THAT(normalised, ElementsAreArray(machine.reference.i32("chosen_normalised")));
}

TEST(MultipleChoice, ScoresDoNotDependOnTheBatch) {
  QuestionMachine machine;
  const auto alone =
      score_questions(machine.model, machine.questions, {.rows = 1}, machine.runtime);
  const auto together =
      score_questions(machine.model, machine.questions, {.rows = 5}, machine.runtime);
  const std::vector<double> expected = all_scores(alone);
  const std::vector<double> scores = all_scores(together);
  if (rows_keep_their_bits(host_target(1))) {
    EXPECT_EQ(scores, expected);
  } else {
    EXPECT_THAT(scores, Pointwise(DoubleNear(1e-4), expected));
  }
}

TEST(MultipleChoice, TasksAreScoredOnTheirOwn) {
  std::vector<Question> questions;
  std::vector<ScoredQuestion> scored;
  const auto add = [&](const char* task, size_t answer, size_t chosen, size_t normalised) {
    questions.push_back(
        {.task = task, .prompts = {"", ""}, .choices = {"a", "b"}, .answer = answer});
    scored.push_back(
        {.log_likelihoods = {0, 0}, .chosen = chosen, .chosen_normalised = normalised});
  };
  add("second", 1, 1, 0);
  add("first", 0, 0, 0);
  add("second", 1, 1, 1);
  add("second", 0, 1, 1);
  add("second", 0, 0, 1);
  const std::vector<TaskScore> tasks = score_tasks(questions, scored);
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].task, "second");
  EXPECT_EQ(tasks[0].questions, 4);
  EXPECT_DOUBLE_EQ(tasks[0].accuracy, 0.75);
  EXPECT_DOUBLE_EQ(tasks[0].accuracy_normalised, 0.25);
  EXPECT_DOUBLE_EQ(tasks[0].error, std::sqrt(0.75 * 0.25 / 3));
  EXPECT_EQ(tasks[1].task, "first");
  EXPECT_DOUBLE_EQ(tasks[1].accuracy, 1);
  EXPECT_DOUBLE_EQ(tasks[1].error, 0);
}

TEST(MultipleChoice, ALongContextIsCutAtItsStartAndSaysSo) {
  QuestionMachine machine;
  const std::vector<Question> questions{{.task = "long",
                                         .prompts = {std::string(300, 'x') + " the end", "the end"},
                                         .choices = {"of it", "of it"},
                                         .answer = 0}};
  machine.model.config.data.context = 64;
  const auto scored = score_questions(machine.model, questions, {}, machine.runtime);
  EXPECT_TRUE(scored[0].truncated);
  EXPECT_EQ(score_tasks(questions, scored)[0].truncated, 1);
}

TEST(MultipleChoice, TokensAtTheBoundaryAreThoseOfTheTokenizersLibrary) {
  const auto fixture = nlohmann::json::parse(
      read_file(ReferenceTensors::path("multiple_choice") / "boundaries.json"));
  size_t cut = 0;
  for (const auto& known : fixture["cases"]) {
    const auto tokenizer = load_tokenizer(ReferenceTensors::path("tokenizers") /
                                          known["tokenizer"].get<std::string>() / "tokenizer.json");
    const Continuation found =
        tokenize_continuation(*tokenizer, {}, known["context"].get<std::string>(),
                              known["text"].get<std::string>(), known["limit"]);
    EXPECT_EQ(found.tokens, known["tokens"].get<std::vector<int32_t>>()) << known;
    EXPECT_EQ(found.first, known["first"]) << known;
    EXPECT_EQ(found.truncated, known["truncated"]) << known;
    cut += found.truncated ? 1 : 0;
  }
  EXPECT_GT(fixture["cases"].size(), 15U);
  EXPECT_GE(cut, 5U);
}

TEST(MultipleChoice, TheBeginningOfADocumentStandsBeforeEveryContextAndIsNeverCut) {
  const auto tokenizer = load_tokenizer(ReferenceTensors::path("tokenizers") / "llama3");
  const std::vector<int32_t> beginning = beginning_of_document(*tokenizer, "<|begin_of_text|>");
  ASSERT_EQ(beginning.size(), 1U);
  const std::string prompt = "One morning the old miller went down to the";
  const Continuation bare = tokenize_continuation(*tokenizer, {}, prompt, " river", 100);
  std::vector<int32_t> expected = beginning;
  expected.insert(expected.end(), bare.tokens.begin(), bare.tokens.end());
  const Continuation whole = tokenize_continuation(*tokenizer, beginning, prompt, " river", 100);
  EXPECT_EQ(whole.tokens, expected);
  EXPECT_EQ(whole.first, bare.first + 1);
  EXPECT_FALSE(whole.truncated);

  const auto limit = static_cast<int64_t>(expected.size()) - 4;
  const Continuation cut = tokenize_continuation(*tokenizer, beginning, prompt, " river", limit);
  expected.erase(expected.begin() + 1, expected.begin() + 4);
  EXPECT_EQ(cut.tokens, expected);
  EXPECT_EQ(cut.first, whole.first - 3);
  EXPECT_TRUE(cut.truncated);

  const Continuation empty = tokenize_continuation(*tokenizer, beginning, "", " river", 100);
  EXPECT_EQ(empty.tokens.front(), beginning.front());
  EXPECT_EQ(empty.first, 1U);
  const auto scored = static_cast<int64_t>(whole.tokens.size() - whole.first);
  EXPECT_THAT(
      error_of([&] { tokenize_continuation(*tokenizer, beginning, prompt, " river", scored - 1); }),
      HasSubstr("more than the model's context"));
}

TEST(MultipleChoice, AScoreThatIsNoNumberIsAnError) {
  QuestionMachine machine;
  const auto& specs = machine.model.parameters.specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == "head.weight") {
      for (float& weight : machine.model.weight(i).values<float>()) weight = 3e38F;
    }
  }
  EXPECT_THAT(
      error_of([&] { score_questions(machine.model, machine.questions, {}, machine.runtime); }),
      AllOf(HasSubstr("questions.jsonl:1"), HasSubstr("log-likelihood of")));
}

TEST(MultipleChoice, AChoiceThatDoesNotFitIsAnError) {
  QuestionMachine machine;
  machine.model.config.data.context = 8;
  const std::vector<Question> questions{{.origin = "q.jsonl:4",
                                         .task = "t",
                                         .prompts = {"a", "a"},
                                         .choices = {"b", "a choice of many tokens"},
                                         .answer = 0}};
  EXPECT_THAT(error_of([&] { score_questions(machine.model, questions, {}, machine.runtime); }),
              AllOf(HasSubstr("q.jsonl:4: choice 1"), HasSubstr("24 tokens"), HasSubstr("of 8")));
}

TEST(MultipleChoice, StopsWhereItIsToldTo) {
  QuestionMachine machine;
  int64_t calls = 0;
  EXPECT_THAT(error_of([&] {
                score_questions(machine.model, machine.questions, {.rows = 2}, machine.runtime,
                                [&](int64_t, int64_t) { return ++calls < 3; });
              }),
              HasSubstr("interrupted after"));
  EXPECT_EQ(calls, 3);
}

std::string question_error(const std::string& line) {
  const TemporaryFolder folder;
  write_file(folder / "some.jsonl", "\n" + line + "\n");
  return error_of([&] { read_questions(folder / "some.jsonl"); });
}

TEST(Questions, SayWhereALineIsWrong) {
  EXPECT_THAT(question_error("{"), HasSubstr("some.jsonl:2"));
  EXPECT_THAT(question_error("[]"), HasSubstr("is a JSON object"));
  EXPECT_THAT(question_error(R"({"choices": ["a", "b"], "answer": 0})"),
              AllOf(HasSubstr("some.jsonl:2"), HasSubstr("no \"context\"")));
  EXPECT_THAT(question_error(R"({"context": "", "choices": ["a"], "answer": 0})"),
              HasSubstr("at least two"));
  EXPECT_THAT(question_error(R"({"context": "", "choices": ["a", ""], "answer": 0})"),
              HasSubstr("choice 1 is empty"));
  EXPECT_THAT(question_error(R"({"context": "", "choices": ["a", 2], "answer": 0})"),
              HasSubstr("not a text"));
  EXPECT_THAT(question_error(R"({"context": ["x"], "choices": ["a", "b"], "answer": 0})"),
              HasSubstr("a list of 2 texts"));
  for (const char* answer : {"2", "-1", "0.5", "\"C\"", "\"a\"", "\"AB\"", "null", "true"}) {
    EXPECT_THAT(question_error(R"({"context": "", "choices": ["a", "b"], "answer": )" +
                               std::string(answer) + "}"),
                AllOf(HasSubstr("\"answer\" is "), HasSubstr("2 choices")))
        << answer;
  }
  EXPECT_THAT(question_error(R"({"context": "", "context": "", "choices": [], "answer": 0})"),
              HasSubstr("context"));
  EXPECT_THAT(question_error(""), HasSubstr("no questions"));
}

TEST(Questions, TakeTheTaskFromTheFileWhereALineNamesNone) {
  const TemporaryFolder folder;
  write_file(folder / "piqa.jsonl",
             R"({"context": "c", "choices": ["a", "b"], "answer": "B", "source": [1, {}]})"
             "\n\r\n"
             R"({"task": "sciq", "context": ["x", "y"], "choices": ["a", "b"], "answer": 0})");
  const std::vector<Question> questions = read_questions(folder / "piqa.jsonl");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].task, "piqa");
  EXPECT_EQ(questions[0].answer, 1U);
  EXPECT_THAT(questions[0].prompts, ElementsAreArray({"c", "c"}));
  EXPECT_EQ(questions[1].task, "sciq");
  EXPECT_THAT(questions[1].prompts, ElementsAreArray({"x", "y"}));
}

}  // namespace
}  // namespace tessera
