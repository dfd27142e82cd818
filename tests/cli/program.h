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
