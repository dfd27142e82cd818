#include "base/read_file.h"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_at(const ReadFile& file, int64_t offset, size_t bytes) {
  std::string text(bytes, '?');
  file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(FileForReading, GivesBytesOfAnyPlace) {
  const TemporaryFolder folder;
  write_file(folder / "file", "0123456789");
  ReadFile first(folder / "file");
  const ReadFile file = std::move(first);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.path(), folder / "file");
  EXPECT_EQ(text_at(file, 0, 10), "0123456789");
  EXPECT_EQ(text_at(file, 7, 3), "789");
  EXPECT_EQ(text_at(file, 10, 0), "");
  file.will_need(0, 10);
  file.release(0, 10);
  EXPECT_EQ(text_at(file, 0, 2), "01");
}

TEST(FileForReading, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { ReadFile(folder / "none"); }),
              HasSubstr((folder / "none").string() + ": No such file"));
  EXPECT_THAT(error_of([&] { ReadFile(folder.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of([&] { ReadFile(folder / "pipe"); }), HasSubstr("it is not a regular file"));
}

TEST(FileForReading, CutShortIsAnErrorThatSaysWhere) {
  const TemporaryFolder folder;
  write_file(folder / "file", std::string(100'000, 'a'));
  const ReadFile file(folder / "file");
  fs::resize_file(folder / "file", 5000);
  EXPECT_EQ(text_at(file, 4990, 10), std::string(10, 'a'));
  EXPECT_THAT(error_of([&] { text_at(file, 4990, 20); }),
              AllOf(HasSubstr("cannot read 20 bytes at byte 4990 of " + file.path().string()),
                    HasSubstr("cut short while it was read, and ends at byte 5000")));
}

TEST(FileForReading, AFaultOfTheDiskIsAnErrorWithTheSystemsReason) {
  // Nothing lies at address 0, which the system reports as it reports a bad block.
  const ReadFile file("/proc/self/mem");
  EXPECT_THAT(error_of([&] { text_at(file, 0, 1); }),
              HasSubstr("cannot read 1 bytes at byte 0 of /proc/self/mem: Input/output error"));
}

}  // namespace
}  // namespace tessera
