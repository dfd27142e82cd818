#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace tessera::testing {

/// What a finished program gives.
struct ProgramResult {
  int status = 0;
  std::string output;  ///< both streams
};

using Arguments = std::vector<std::string>;

/// Arguments, and then others.
inline Arguments joined(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// How many times a text has a part.
inline size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Starts the program under test; its output is kept in `folder`.
inline std::unique_ptr<Subprocess> start_program(const TemporaryFolder& folder,
                                                 std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TESSERA_PROGRAM);
  return std::make_unique<Subprocess>(std::move(arguments), folder.path() / "output.txt");
}

/// Runs it to its end.
inline ProgramResult run_program(const TemporaryFolder& folder,
                                 std::vector<std::string> arguments) {
  const auto process = start_program(folder, std::move(arguments));
  const int status = process->wait();
  return {status, process->output()};
}

}  // namespace tessera::testing
