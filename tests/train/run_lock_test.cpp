#include "train/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/error_of.h"
#include "support/fork_child.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunLock, SaysWhoHoldsTheRun) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  {
    const RunLock lock(run, Logger());
    EXPECT_THAT(error_of([&] { const RunLock second(run, Logger()); }),
                AllOf(HasSubstr(run.string() + " is held by process " + std::to_string(::getpid())),
                      HasSubstr(" on "), HasSubstr(" since 20"), HasSubstr("test_train")));
    EXPECT_TRUE(fs::exists(run / "run.lock"));
  }
  const RunLock again(run, Logger());
}

TEST(RunLock, LeavesNothingBehind) {
  const TemporaryFolder folder;
  const fs::path run = folder / "runs/a/b";
  { const RunLock lock(run, Logger()); }
  EXPECT_FALSE(fs::exists(folder / "runs")) << "it held nothing";
  {
    RunLock lock(run, Logger());
    lock.keep_folder();
  }
  EXPECT_TRUE(fs::is_directory(run));
  EXPECT_TRUE(fs::is_empty(run));
}

TEST(RunLock, KnowsThatItsFolderIsAtItsPathNoMore) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const fs::path moved = folder / "moved";
  {
    const RunLock first(run, Logger());
    first.require_held();
    fs::rename(run, moved);
    EXPECT_THAT(error_of([&] { first.require_held(); }),
                AllOf(HasSubstr(run.string() + " was moved to " + moved.string()),
                      HasSubstr("run.directory = \"" + moved.string() + "\"")));
    const RunLock second(run, Logger());
    EXPECT_THAT(error_of([&] { first.require_held(); }),
                AllOf(HasSubstr("was moved to " + moved.string()),
                      HasSubstr("the path is held by process " + std::to_string(::getpid()))));
    second.require_held();
    fs::remove(run / "run.lock");
    EXPECT_THAT(error_of([&] { second.require_held(); }),
                HasSubstr((run / "run.lock").string() + " was removed or replaced"));
    write_file(run / "run.lock", "another's");
  }
  EXPECT_EQ(read_file(run / "run.lock"), "another's") << "a lock removes its own file only";
}

TEST(RunLock, OfAKilledProcessHoldsNobodyUp) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = testing::fork_child();
  if (child == 0) {
    const RunLock lock(run, Logger());
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  EXPECT_THAT(error_of([&] { const RunLock lock(run, Logger()); }),
              HasSubstr("held by process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(run / "run.lock")) << "what it left";
  const RunLock lock(run, Logger());
  EXPECT_THAT(error_of([&] { const RunLock second(run, Logger()); }),
              HasSubstr("held by process " + std::to_string(::getpid())));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace tessera
