#include "base/progress.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/log.h"
#include "support/error_terminal.h"

namespace tessera {
namespace {

using testing::ErrorTerminal;

TEST(Progress, PrintsTheLastLineOnce) {
  ::testing::internal::CaptureStderr();  // to a file, which is not a terminal
  {
    Progress progress;
    progress.show("all of it");
    progress.show("all of it", true);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "all of it\n");
}

TEST(Progress, PrintsTheLastLineThoughItIsNotDue) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress;
    progress.show("a part");
    progress.show("most");
    progress.show("all of it", true);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "a part\nall of it\n");
}

constexpr const char* kDrawn = "\r\033[K";

TEST(Progress, IsCutWhereTheTerminalEnds) {
  const std::string text = "step 1 \u2026 of many, and so on for more than forty columns";
  const auto shown = [&](uint16_t columns, std::map<std::string, std::string> variables) {
    variables.emplace("TERM", "xterm");
    const ErrorTerminal terminal(columns, variables);
    Progress progress;
    progress.show(text);
    return terminal.take();
  };
  EXPECT_EQ(shown(40, {}), kDrawn + text.substr(0, 39 + 2)) << "39 characters, one of 3 bytes";
  EXPECT_EQ(shown(40, {{"COLUMNS", "11"}}), kDrawn + text.substr(0, 10 + 2));
  EXPECT_EQ(shown(40, {{"COLUMNS", "x"}}), kDrawn + text.substr(0, 39 + 2));
  EXPECT_EQ(shown(0, {}), kDrawn + text) << "a terminal that does not say is taken for 80 columns";
}

TEST(Progress, DrawsNothingOverWhereTheTerminalCannot) {
  for (const char* term : {"dumb", ""}) {
    const ErrorTerminal terminal(20, {{"TERM", term}, {"COLORTERM", "truecolor"}});
    {
      Progress progress;
      progress.show("a part, of which nothing is left out");
      progress.show("most");
      progress.show("all of it", true);
    }
    EXPECT_EQ(terminal.take(), "a part, of which nothing is left out\nall of it\n");
  }
}

TEST(Logger, HasColoursOnlyWhereTheyAreWanted) {
  const auto coloured = [](std::map<std::string, std::string> variables) {
    const ErrorTerminal terminal(80, std::move(variables));
    Logger().warn("something");
    const std::string text = terminal.take();
    EXPECT_THAT(text, ::testing::HasSubstr("something"));
    return text.find('\033') != std::string::npos;
  };
  EXPECT_TRUE(coloured({{"TERM", "xterm"}}));
  EXPECT_TRUE(coloured({{"TERM", "xterm"}, {"NO_COLOR", ""}}));
  EXPECT_FALSE(coloured({{"TERM", "xterm"}, {"NO_COLOR", "1"}}));
  EXPECT_FALSE(coloured({{"TERM", "dumb"}, {"COLORTERM", "truecolor"}}));
}

TEST(Progress, IsSilentWhereNobodyReadsIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const int error = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  EXPECT_NO_THROW(Progress().show("a part", true));
  ::dup2(error, STDERR_FILENO);
  ::close(error);
  ::close(ends[1]);
  std::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace tessera
