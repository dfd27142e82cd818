#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/text.h"
#include "cli/program.h"
#include "support/error_terminal.h"

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// `explain` of a pipeline, whose stages are planned one after the other.
class ExplainProgress : public ::testing::Test {
 protected:
  ExplainProgress() {
    write_file(folder_ / "pipeline.toml",
               "[model]\nfamily = 'llama'\nlayers = 4\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
               "feed_forward_size = 16\nvocabulary_size = 32\n[data]\ncontext = 8\n"
               "[train]\nmicro_batch = 1\nglobal_batch = 8\nsteps = 20\n"
               "[parallel]\npipeline = 2\n");
  }
  /// Returns what it prints to standard output. Standard error goes to `errors`.
  std::string explain(const std::string& errors, const std::vector<std::string>& more = {}) const {
    testing::Subprocess process(
        {"/bin/sh", "-c",
         fmt::format("exec {} explain {} --ranks 2 {} 2>{}", TESSERA_PROGRAM,
                     (folder_ / "pipeline.toml").string(), join(more, " "), errors)},
        folder_ / "output.txt");
    EXPECT_EQ(process.wait(), 0) << process.output();
    return process.output();
  }

  TemporaryFolder folder_;
};

TEST_F(ExplainProgress, IsShownOnATerminalAndRemovedBeforeTheResult) {
  const std::string file = (folder_ / "errors.txt").string();
  const std::string plain = explain(file);
  const testing::ErrorTerminal terminal(200, {{"TERM", "xterm"}});
  const std::string terminal_name = ::ttyname(STDERR_FILENO);
  EXPECT_EQ(explain(terminal_name), plain) << "standard output is the same";
  const std::string shown = terminal.take();
  EXPECT_THAT(shown, HasSubstr("  0% [                        ] planning rank 0"));
  EXPECT_THAT(shown, EndsWith("\r\033[K"));
  EXPECT_TRUE(nlohmann::json::parse(explain(terminal_name, {"--json"})).is_object());
  EXPECT_THAT(terminal.take(), HasSubstr("planning rank 0"));
}

TEST_F(ExplainProgress, IsNotShownElsewhere) {
  const std::string file = (folder_ / "errors.txt").string();
  EXPECT_THAT(explain(file), Not(HasSubstr("planning")));
  EXPECT_EQ(read_file(file), "");
  const testing::ErrorTerminal terminal(200, {{"TERM", "dumb"}});
  explain(::ttyname(STDERR_FILENO));
  EXPECT_EQ(terminal.take(), "") << "a terminal that cannot draw over a line";
}

}  // namespace
}  // namespace tessera
