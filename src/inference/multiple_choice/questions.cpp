#include "inference/multiple_choice/questions.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kDeepestLine = 16;  // levels of nesting; the values of unknown keys may have some

/// Returns a required member of a question.
const Json& member(const Json& line, const char* key, const std::string& origin) {
  const auto found = line.find(key);
  if (found == line.end()) {
    throw Error("{}: there is no \"{}\"; a question has \"context\", \"choices\" and \"answer\"",
                origin, key);
  }
  return *found;
}

std::vector<std::string> read_texts(const Json& list, const char* key, const std::string& origin) {
  std::vector<std::string> result;
  for (const Json& text : list) {
    if (!text.is_string()) throw Error("{}: \"{}\" holds what is not a text", origin, key);
    result.push_back(text.get<std::string>());
  }
  return result;
}

std::vector<std::string> read_choices(const Json& line, const std::string& origin) {
  const Json& choices = member(line, "choices", origin);
  if (!choices.is_array() || choices.size() < 2) {
    throw Error("{}: \"choices\" must be a list of at least two texts", origin);
  }
  std::vector<std::string> result = read_texts(choices, "choices", origin);
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i].empty()) throw Error("{}: choice {} is empty", origin, i);
  }
  return result;
}

std::vector<std::string> read_prompts(const Json& line, size_t choices, const std::string& origin) {
  const Json& prompt = member(line, "context", origin);
  if (prompt.is_string()) return {choices, prompt.get<std::string>()};
  if (!prompt.is_array() || prompt.size() != choices) {
    throw Error("{}: \"context\" must be a text, or a list of {} texts, one for each choice",
                origin, choices);
  }
  return read_texts(prompt, "context", origin);
}

size_t read_answer(const Json& line, size_t choices, const std::string& origin) {
  const Json& answer = member(line, "answer", origin);
  size_t found = choices;
  if (answer.is_number_unsigned()) {
    found = answer.get<size_t>();
  } else if (answer.is_string()) {
    const auto& letter = answer.get_ref<const std::string&>();
    if (letter.size() == 1 && letter[0] >= 'A' && letter[0] <= 'Z') {
      found = static_cast<size_t>(letter[0] - 'A');
    }
  }
  if (found >= choices) {
    throw Error(
        "{}: \"answer\" is {}; it must be the number of one of the {} choices from 0, or its "
        "letter from \"A\"",
        origin, printable(answer.dump(-1, ' ', false, Json::error_handler_t::replace)), choices);
  }
  return found;
}

Question read_question(const std::string& text, const std::string& task,
                       const std::string& origin) {
  const Json line = parse_strict_json(text, origin, kDeepestLine);
  if (!line.is_object()) throw Error("{}: a question is a JSON object", origin);
  Question question;
  question.origin = origin;
  question.task = task;
  if (const auto found = line.find("task"); found != line.end()) {
    if (!found->is_string()) throw Error("{}: \"task\" must be a text", origin);
    question.task = found->get<std::string>();
  }
  question.choices = read_choices(line, origin);
  question.prompts = read_prompts(line, question.choices.size(), origin);
  question.answer = read_answer(line, question.choices.size(), origin);
  return question;
}

}  // namespace

std::vector<Question> read_questions(const fs::path& path) {
  if (!is_file(path)) throw Error("{}: there is no such file", path.string());
  std::ifstream file(path);
  if (!file) throw Error("{}: the questions cannot be opened", path.string());
  std::vector<Question> questions;
  std::string text;
  for (int64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string origin = fmt::format("{}:{}", path.string(), number);
    questions.push_back(read_question(text, path.stem().string(), origin));
  }
  if (file.bad()) throw Error("{}: reading failed", path.string());
  if (questions.empty()) throw Error("{}: there are no questions in it", path.string());
  return questions;
}

}  // namespace tessera
