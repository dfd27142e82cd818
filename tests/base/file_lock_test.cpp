#include "base/file_lock.h"

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

using ::testing::HasSubstr;
using State = FileLock::State;

TEST(FileLock, OneHoldsIt) {
  const TemporaryFolder folder;
  {
    const FileLock first = FileLock::on_file(folder / "lock");
    EXPECT_EQ(first.state(), State::held);
    EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::busy);
    EXPECT_EQ(FileLock::on_folder(folder.path()).state(), State::held) << "another lock";
  }
  EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::held);
  EXPECT_THAT(error_of([&] { FileLock::on_folder(folder / "none"); }), HasSubstr("none"));
}

TEST(FileLock, MovesWithItsOwner) {
  const TemporaryFolder folder;
  FileLock first = FileLock::on_file(folder / "lock");
  FileLock second = std::move(first);
  EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::busy);
  second = FileLock::on_file(folder / "other");
  first = FileLock::on_file(folder / "third");
  EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::held);
}

TEST(FileLock, KnowsWhetherItsFileIsStillThere) {
  const TemporaryFolder folder;
  const FileLock lock = FileLock::on_file(folder / "lock");
  EXPECT_TRUE(lock.is_at(folder / "lock"));
  fs::remove(folder / "lock");
  EXPECT_FALSE(lock.is_at(folder / "lock"));
  folder.write("lock", "");
  EXPECT_FALSE(lock.is_at(folder / "lock"));
}

TEST(FileLock, EndsWithAProcessThatIsKilled) {
  const TemporaryFolder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = testing::fork_child();
  if (child == 0) {
    const FileLock lock = FileLock::on_file(folder / "lock");
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::busy);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(FileLock::on_file(folder / "lock").state(), State::held);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace tessera
