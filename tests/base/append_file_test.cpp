#include "base/append_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(AppendFile, GoesOnAtTheEndOfWhatIsThere) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("log", "one\n");
  {
    AppendFile file(path);
    file.append("two\n");
    EXPECT_EQ(read_file(path), "one\ntwo\n") << "others see a piece at once";
  }
  AppendFile(path).append("three\n");
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
}

TEST(AppendFile, APieceThatDoesNotFitLeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  const fs::path path = folder / "log";
  AppendFile file(path);
  file.append("fits\n");
  {
    const FileSizeLimit limit(8);
    EXPECT_THAT(error_of([&] { file.append("does not fit\n"); }), HasSubstr(path.string()));
  }
  EXPECT_EQ(read_file(path), "fits\n");
  file.append("fits again\n");
  EXPECT_EQ(read_file(path), "fits\nfits again\n");
}

TEST(AppendFile, DoesNotWriteWhereNobodyWouldFindIt) {
  const TemporaryFolder folder;
  const fs::path path = folder / "log";
  AppendFile file(path);
  file.append("one\n");
  fs::rename(path, folder / "moved");
  EXPECT_THAT(error_of([&] { file.append("two\n"); }), HasSubstr(path.string() + ": it was moved"));
  folder.write("log", "another's\n");
  EXPECT_THAT(error_of([&] { file.append("two\n"); }), HasSubstr("replaced"));
  EXPECT_EQ(read_file(path), "another's\n");
  fs::rename(folder / "moved", path);
  file.append("two\n");
  EXPECT_EQ(read_file(path), "one\ntwo\n");
}

TEST(AppendFile, WhatTheDiskRefusesToKeepIsNamed) {
  // A pipe takes bytes and has no disk to bring them to.
  const TemporaryFolder folder;
  const fs::path path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  {
    AppendFile file(path);
    EXPECT_THAT(error_of([&] { file.sync(); }), HasSubstr("cannot flush " + path.string()));
  }
  ::close(reader);
}

TEST(AppendFile, AFolderThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { AppendFile(folder / "none/log"); }), HasSubstr("none/log"));
}

}  // namespace
}  // namespace tessera
