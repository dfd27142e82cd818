#include "cli/standard_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/hugging_face_folder.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::Subprocess;
using Result = testing::ProgramResult;

/// What becomes of what commands print.
class StandardOutput : public ::testing::Test {
 protected:
  StandardOutput() {
    testing::HuggingFaceFolder source(folder_ / "source", testing::small_olmoe_config(),
                                      DType::f32);
    source.write();
    write_file(folder_ / "source/tokenizer.json", "{\"kind\": \"bytes\"}");
    testing::prepare_small_data(folder_.path());
    write_file(folder_ / "config.toml", testing::small_config(folder_.path()));
    write_file(folder_ / "tasks.jsonl", R"({"context": "c", "choices": ["a", "b"], "answer": 0})");
    EXPECT_EQ(testing::run_program(folder_, {"checkpoint", "import", path("source"), "--output",
                                             path("model"), "--quiet"})
                  .status,
              0);
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  /// Runs a command with what a shell adds to it, such as a redirection.
  Result in_shell(const std::string& script, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/bin/bash", "-c", script, TESSERA_PROGRAM});
    Subprocess shell(std::move(arguments), folder_.path() / "output.txt");
    const int status = shell.wait();
    return {status, shell.output()};
  }
  /// Every command that prints a result and takes no time.
  std::vector<std::vector<std::string>> commands() const {
    return {{"--help"},
            {"--version"},
            {"generate", "--help"},
            {"eval", "--checkpoint", path("model"), "--data", path("data"), "--json"},
            {"eval", "--checkpoint", path("model"), "--data", path("data")},
            {"eval", "--checkpoint", path("model"), "--tasks", path("tasks.jsonl"), "--json"},
            {"generate", "--checkpoint", path("model"), "--prompt", "a", "--tokens", "2"},
            {"generate", "--checkpoint", path("model"), "--prompt", "a", "--tokens", "2", "--json"},
            {"checkpoint", "verify", path("model")},
            {"checkpoint", "inspect", path("model"), "--json"},
            {"checkpoint", "export", path("model"), "--output", path("out"), "--quiet"},
            {"explain", path("config.toml"), "--json"},
            {"explain", path("config.toml"), "--all"}};
  }

  TemporaryFolder folder_;
};

TEST_F(StandardOutput, AFullOneIsAnErrorThatSaysSo) {
  for (const auto& command : commands()) {
    const Result result =
        in_shell("\"$0\" \"$@\" 2>&1 >/dev/full | tail -1; exit ${PIPESTATUS[0]}", command);
    EXPECT_EQ(result.status, 1) << ::testing::PrintToString(command);
    EXPECT_THAT(result.output, StartsWith("tessera: error: standard output cannot be written: "))
        << ::testing::PrintToString(command);
  }
}

TEST_F(StandardOutput, APipeThatNobodyReadsEndsQuietly) {
  // More than a pipe holds.
  const std::vector<std::string> command{"explain", path("config.toml"), "--json", "--all",
                                         "--set",   "model.layers=24"};
  const Result killed =
      in_shell("\"$0\" \"$@\" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", command);
  EXPECT_EQ(killed.status, 128 + SIGPIPE) << "as the shell knows it of other programs";
  EXPECT_THAT(killed.output, IsEmpty());
  const Result ignored = in_shell(
      "trap '' PIPE; \"$0\" \"$@\" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", command);
  EXPECT_EQ(ignored.status, 1);
  EXPECT_THAT(ignored.output, IsEmpty());
}

TEST_F(StandardOutput, AFullStandardErrorLosesItsLinesAlone) {
  const Result result =
      in_shell("\"$0\" \"$@\" 2>/dev/full", {"generate", "--checkpoint", path("model"), "--prompt",
                                             "a", "--tokens", "2", "--ignore-end"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output.front(), 'a');
  EXPECT_EQ(in_shell("\"$0\" \"$@\" 2>/dev/full", {"eval", "--checkpoint", path("none")}).status,
            1);
}

}  // namespace
}  // namespace tessera
