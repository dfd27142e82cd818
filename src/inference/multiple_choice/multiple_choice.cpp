#include "inference/multiple_choice/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer.h"
#include "inference/multiple_choice/log_likelihood.h"

namespace tessera {
namespace {

/// Returns a choice with the delimiter that separates it from its prompt.
std::string delimited(const std::string& choice, const std::string& delimiter) {
  return choice.find_first_of(" \t\n\r") == 0 ? choice : delimiter + choice;
}

/// Returns the number of characters of UTF-8 text.
double characters(const std::string& text) {
  return static_cast<double>(text.size() -
                             static_cast<size_t>(std::ranges::count_if(text, is_inside_character)));
}

size_t index_of_largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

/// Returns the standard error of a mean p of n zeros and ones: sqrt(p (1 - p) / (n - 1)).
double standard_error(double mean, int64_t count) {
  return count < 2 ? 0 : std::sqrt(mean * (1 - mean) / static_cast<double>(count - 1));
}

/// Returns the choices of all questions, one after the other, as continuations of their prompts.
std::vector<Continuation> tokenize(const LoadedModel& model, std::span<const Question> questions,
                                   const MultipleChoiceOptions& options) {
  const std::vector<int32_t> beginning =
      beginning_of_document(*model.tokenizer, options.beginning_of_document);
  std::vector<Continuation> continuations;
  for (const Question& question : questions) {
    for (size_t choice = 0; choice < question.choices.size(); ++choice) {
      try {
        continuations.push_back(tokenize_continuation(
            *model.tokenizer, beginning, question.prompts[choice],
            delimited(question.choices[choice], options.delimiter), model.config.data.context));
        require_in_vocabulary(continuations.back().tokens, model.config.model.vocabulary_size,
                              model.tokenizer.get());
      } catch (const Error& error) {
        throw Error("{}: choice {}: {}", question.origin, choice, error.what());
      }
    }
  }
  return continuations;
}

}  // namespace

std::vector<ScoredQuestion> score_questions(
    const LoadedModel& model, std::span<const Question> questions,
    const MultipleChoiceOptions& options, Runtime& runtime,
    const std::function<bool(int64_t, int64_t)>& on_progress) {
  const std::vector<Continuation> continuations = tokenize(model, questions, options);
  const auto all = static_cast<int64_t>(continuations.size());
  const std::vector<double> scores =
      log_likelihoods(model, continuations, options.rows, runtime,
                      [&](int64_t done) { return !on_progress || on_progress(done, all); });
  std::vector<ScoredQuestion> result;
  size_t index = 0;  // of the next choice
  for (const Question& question : questions) {
    ScoredQuestion& scored = result.emplace_back();
    std::vector<double> normalised;
    for (const std::string& choice : question.choices) {
      if (!std::isfinite(scores[index])) {
        throw Error("{}: the log-likelihood of \"{}\" is {}: the model's weights are damaged",
                    question.origin, choice, scores[index]);
      }
      scored.truncated |= continuations[index].truncated;
      scored.log_likelihoods.push_back(scores[index++]);
      normalised.push_back(scored.log_likelihoods.back() / characters(choice));
    }
    scored.chosen = index_of_largest(scored.log_likelihoods);
    scored.chosen_normalised = index_of_largest(normalised);
  }
  return result;
}

std::vector<TaskScore> score_tasks(std::span<const Question> questions,
                                   std::span<const ScoredQuestion> scored) {
  std::vector<TaskScore> tasks;
  std::map<std::string, size_t> indices;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto [entry, is_new] = indices.try_emplace(questions[i].task, tasks.size());
    if (is_new) tasks.push_back({.task = questions[i].task});
    TaskScore& task = tasks[entry->second];
    ++task.questions;
    task.accuracy += scored[i].chosen == questions[i].answer ? 1 : 0;
    task.accuracy_normalised += scored[i].chosen_normalised == questions[i].answer ? 1 : 0;
    task.truncated += scored[i].truncated ? 1 : 0;
  }
  for (TaskScore& task : tasks) {
    task.accuracy /= static_cast<double>(task.questions);
    task.accuracy_normalised /= static_cast<double>(task.questions);
    task.error = standard_error(task.accuracy, task.questions);
    task.error_normalised = standard_error(task.accuracy_normalised, task.questions);
  }
  return tasks;
}

}  // namespace tessera
