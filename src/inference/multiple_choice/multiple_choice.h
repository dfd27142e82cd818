#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "inference/loaded_model.h"
#include "inference/multiple_choice/questions.h"

namespace tessera {

/// The options of score_questions().
struct MultipleChoiceOptions {
  /// The text between a prompt and a choice. It is left out if the choice begins with white space.
  std::string delimiter = " ";
  /// The control token before every prompt (see beginning_of_document()); "": none.
  std::string beginning_of_document;
  int64_t rows = 8;  ///< choices that run through the model at once
};

/// A model's scores for one question.
struct ScoredQuestion {
  std::vector<double> log_likelihoods;  ///< nats, by choice
  size_t chosen = 0;                    ///< the likeliest choice, the first of equal ones
  size_t chosen_normalised = 0;         ///< the same by log-likelihood per character of the choice
  bool truncated = false;               ///< true if a prompt was cut to fit the model
};

/// The share of a task's questions that were answered correctly.
struct TaskScore {
  std::string task;
  int64_t questions = 0;
  double accuracy = 0;             ///< by log-likelihood
  double accuracy_normalised = 0;  ///< by log-likelihood over the choice's number of characters
  double error = 0;                ///< standard error of `accuracy`
  double error_normalised = 0;     ///< standard error of `accuracy_normalised`
  int64_t truncated = 0;           ///< questions with a prompt that was cut
};

/// Returns the score of every choice of every question: the log-likelihood of its tokens after its
/// prompt. Calls `on_progress` with the number of choices done and the number of all, and throws
/// Error if `on_progress` returns false. Throws Error naming the question when a choice does not
/// fit the model or has a token outside its vocabulary, and when a score is not finite.
std::vector<ScoredQuestion> score_questions(
    const LoadedModel& model, std::span<const Question> questions,
    const MultipleChoiceOptions& options, Runtime& runtime,
    const std::function<bool(int64_t, int64_t)>& on_progress = nullptr);

/// Returns the score of each task, in the order in which the tasks first occur.
std::vector<TaskScore> score_tasks(std::span<const Question> questions,
                                   std::span<const ScoredQuestion> scored);

}  // namespace tessera
