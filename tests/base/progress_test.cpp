#include "base/progress.h"

#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

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
