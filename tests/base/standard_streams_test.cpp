#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fork_child.h"

namespace tessera {
namespace {

/// What `action` gives in a child process that has no standard streams.
template <typename Action>
int without_streams(Action&& action) {
  const pid_t child = testing::fork_child();
  if (child == 0) {
    ::close_range(0, ~0U, 0);  // also what the test's parent left open
    ::_exit(action());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardStreams, AFileThatIsOpenedTakesTheNumberOfNone) {
  EXPECT_EQ(without_streams([] { return ::open("/dev/null", O_RDONLY); }), 0) << "what would be";
  EXPECT_EQ(without_streams([] {
              open_missing_streams();
              return ::open("/dev/null", O_RDONLY);
            }),
            3);
}

TEST(StandardStreams, MessagesAreDroppedAndResultsFail) {
  EXPECT_EQ(without_streams([] {
              open_missing_streams();
              return ::write(2, "x", 1) == 1 && ::write(1, "x", 1) < 0 ? 0 : 1;
            }),
            0);
}

TEST(StandardStreams, WhatIsOpenStays) {
  const pid_t child = testing::fork_child();
  if (child == 0) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(1);
    ::dup2(ends[1], 2);
    ::close(0);
    open_missing_streams();
    char byte = 0;
    ::_exit(::write(2, "x", 1) == 1 && ::read(ends[0], &byte, 1) == 1 && byte == 'x' ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tessera
