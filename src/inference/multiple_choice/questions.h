#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

/// One multiple-choice question: each choice is a continuation of its context.
struct Question {
  std::string origin;                 ///< "file.jsonl:7", for messages
  std::string task;                   ///< questions of one task are counted together
  std::vector<std::string> contexts;  ///< by choice; may be empty texts
  std::vector<std::string> choices;   ///< at least two, none empty
  size_t answer = 0;                  ///< which choice is right
};

/// Reads questions from a JSON Lines file, one object a line:
///
///   {"context": "Question: ...\nAnswer:", "choices": ["red", "blue"], "answer": 1}
///
/// `answer` is the right choice's number from 0 or its letter ("A" is the first). `context` may be
/// a list with a text for each choice, as WinoGrande asks for, whose options stand in the middle of
/// a sentence. `task`, where it is left out, is the file's name. Other keys are passed over; blank
/// lines too. Throws Error naming file, line and what is wrong.
std::vector<Question> read_questions(const fs::path& path);

}  // namespace tessera
