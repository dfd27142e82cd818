#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

/// One multiple-choice question: each choice is a continuation of its prompt.
struct Question {
  std::string origin;                ///< "file.jsonl:7", for messages
  std::string task;                  ///< questions of one task are counted together
  std::vector<std::string> prompts;  ///< by choice; texts may be empty
  std::vector<std::string> choices;  ///< at least two, none empty
  size_t answer = 0;                 ///< index of the right choice
};

/// Reads questions from a JSON Lines file, one object per line:
///
///   {"context": "Question: ...\nAnswer:", "choices": ["red", "blue"], "answer": 1}
///
/// `answer` is the right choice's number from 0 or its letter ("A" is the first). `context`, the
/// prompt, may be a list with one text per choice. WinoGrande needs that, because its options are
/// in the middle of a sentence. `task` is the file's name without extension if it is left out.
/// Other keys and blank lines are skipped. Throws Error that names the file, the line and the
/// problem, also for a file without questions.
std::vector<Question> read_questions(const fs::path& path);

}  // namespace tessera
