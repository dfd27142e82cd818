#pragma once

#include <string>
#include <vector>

namespace tessera {

/// `eval --tasks`: what the command line says.
struct EvalTasksArguments {
  std::string checkpoint;
  std::vector<std::string> files;  ///< JSON Lines, see read_questions()
  std::string predictions;         ///< where each question's scores go; empty: nowhere
  std::string delimiter = " ";
  std::string beginning_of_document;
  int64_t batch = 8;
  int threads = 0;
  bool json = false;
};

/// Answers multiple-choice questions and prints the score of each task and their average.
void eval_tasks(const EvalTasksArguments& arguments);

}  // namespace tessera
