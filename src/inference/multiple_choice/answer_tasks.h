#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "inference/multiple_choice/multiple_choice.h"

namespace tessera {

/// The options of answer_tasks(): a checkpoint and its questions.
struct TaskOptions {
  std::string checkpoint;          ///< a run's folder, or one checkpoint
  std::vector<std::string> files;  ///< JSON Lines, see read_questions()
  MultipleChoiceOptions scoring;
  int threads = 0;              ///< 0: all usable cores
  Device device = Device::cpu;  ///< the device that computes
};

/// The answers of a checkpoint and their scores.
struct TaskAnswers {
  fs::path checkpoint;
  int64_t step = 0;
  int64_t context = 0;  ///< the most tokens that the model can read
  std::vector<Question> questions;
  std::vector<ScoredQuestion> scored;  ///< by question
  std::vector<TaskScore> tasks;

  /// Returns a table of the tasks' scores and their average. Each task counts the same in the
  /// average (as in Optimus' Table 2).
  std::string text() const;
  /// Returns the scores of text() as one JSON object on one line.
  std::string json() const;
  /// Returns the scores of every question as JSON Lines, in the order of the files.
  std::string predictions() const;
};

/// Answers the questions of all files, shows a line of progress, and returns the answers and
/// scores. Throws Error when two files name the same task by their file names alone, when a choice
/// does not fit the model, and on Ctrl-C.
TaskAnswers answer_tasks(const TaskOptions& options);

}  // namespace tessera
