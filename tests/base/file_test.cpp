#include "base/file.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/links.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/names_in.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;

TEST(ReadFile, GivesEveryByte) {
  const TemporaryFolder folder;
  const std::string text("a\0b\nc", 5);
  write_file(folder / "file", text);
  EXPECT_EQ(read_file(folder / "file"), text);
}

TEST(ReadFile, NamesThePathAndTheReason) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_file(folder / "none"); }),
              HasSubstr((folder / "none").string() + ": No such file"));
  EXPECT_THAT(error_of([&] { read_file(folder.path()); }), HasSubstr("it is a folder"));
}

TEST(AtomicFile, IsInvisibleUntilItIsCommitted) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "model");
  file.write("first ");
  EXPECT_FALSE(fs::exists(folder / "model"));
  file.write("second");
  EXPECT_EQ(file.size(), 12);
  file.commit();
  EXPECT_EQ(read_file(folder / "model"), "first second");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("model"));
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const TemporaryFolder folder;
  { AtomicFile(folder / "model").write("half"); }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(AtomicFile, KeepsTheOldFileWithoutCommit) {
  const TemporaryFolder folder;
  write_file(folder / "model", "old");
  { AtomicFile(folder / "model").write("new"); }
  EXPECT_EQ(read_file(folder / "model"), "old");
  write_file(folder / "model", "new");
  EXPECT_EQ(read_file(folder / "model"), "new");
}

TEST(AtomicFile, DoesNotTakeThePlaceOfWhatIsNoFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink(folder / "pipe", folder / "link");
  fs::create_directory(folder / "folder");
  for (const char* name : {"pipe", "link"}) {
    EXPECT_THAT(error_of([&] { write_file(folder / name, "text"); }),
                HasSubstr(std::string(name) + ": it is no regular file; name a file"));
    EXPECT_TRUE(fs::is_fifo(folder / name));
  }
  EXPECT_THAT(error_of([&] { write_file(folder / "folder", "text"); }),
              HasSubstr("it is a folder; name a file"));
  EXPECT_FALSE(fs::exists(folder / "pipe.partial"));
}

TEST(AtomicFile, OverwritesWhatIsWritten) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "array");
  file.write("0000 body");
  file.overwrite(1, std::as_bytes(std::span("23", 2)));
  file.write(".");
  EXPECT_THROW(file.overwrite(9, std::as_bytes(std::span("23", 2))), InternalError);
  file.commit();
  EXPECT_EQ(read_file(folder / "array"), "0230 body.");
}

TEST(AtomicFile, WritesMoreThanItsBufferHolds) {
  const TemporaryFolder folder;
  std::vector<int32_t> values(1'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761u);
  AtomicFile file(folder / "values");
  file.write("head");
  file.write(std::as_bytes(std::span<const int32_t>(values)));
  file.write("tail");
  file.commit();
  const std::string content = read_file(folder / "values");
  ASSERT_EQ(content.size(), 8 + values.size() * 4);
  EXPECT_EQ(std::memcmp(content.data() + 4, values.data(), values.size() * 4), 0);
  EXPECT_EQ(content.substr(content.size() - 4), "tail");
}

TEST(AtomicFile, AFolderThatIsMissingIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { write_file(folder / "none/file", "text"); }),
              HasSubstr("cannot create"));
}

TEST(AtomicFile, AFailedWriteLeavesNothingBehind) {
  const TemporaryFolder folder;
  write_file(folder / "model", "old");
  {
    const FileSizeLimit limit(4096);
    EXPECT_THAT(error_of([&] { write_file(folder / "model", std::string(10'000, 'x')); }),
                HasSubstr("cannot write " + (folder / "model").string()));
  }
  EXPECT_EQ(read_file(folder / "model"), "old");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("model"));
}

TEST(FindInputs, TakesAFileAFolderOrAGlob) {
  const TemporaryFolder folder;
  ensure_directory(folder / "corpus/deep");
  for (const char* name : {"corpus/b.txt", "corpus/a.jsonl", "corpus/deep/c.txt", "other.txt"}) {
    write_file(folder / name, "text");
  }
  EXPECT_THAT(find_inputs((folder / "other.txt").string()), ElementsAre(folder / "other.txt"));
  EXPECT_THAT(find_inputs((folder / "corpus").string()),
              ElementsAre(folder / "corpus/a.jsonl", folder / "corpus/b.txt",
                          folder / "corpus/deep/c.txt"));
  EXPECT_THAT(find_inputs((folder / "*/*.txt").string()), ElementsAre(folder / "corpus/b.txt"));
  EXPECT_THAT(find_inputs((folder / "corp*").string()).size(), 3u);
}

TEST(Paths, WhatStandsThereIsKnownOrTheSystemsReasonIsGiven) {
  const TemporaryFolder folder;
  write_file(folder / "file", "text");
  fs::create_directory_symlink(folder.path(), folder / "link");
  fs::create_symlink("circle", folder / "circle");
  EXPECT_TRUE(is_file(folder / "link/file"));
  EXPECT_TRUE(is_folder(folder / "link"));
  EXPECT_FALSE(is_folder(folder / "file"));
  EXPECT_FALSE(path_exists(folder / "none"));
  EXPECT_FALSE(path_exists(folder / "file/below"));
  const fs::path long_name = folder / std::string(300, 'x');
  for (const fs::path& path : {long_name, folder / "circle"}) {
    for (const auto& ask : {path_exists, is_file, is_folder}) {
      EXPECT_THAT(error_of([&] { ask(path); }),
                  HasSubstr("cannot look at " + path.string() + ": "));
    }
    EXPECT_THAT(error_of([&] { canonical_path(path); }), HasSubstr(path.string()));
    EXPECT_THAT(error_of([&] { find_inputs(path.string()); }), HasSubstr(path.string() + ": "));
  }
  EXPECT_THAT(error_of([&] { path_exists(long_name); }), HasSubstr("too long"));
}

TEST(Paths, ALinkThatLeadsNowhereIsNamedWithWhatItLeadsTo) {
  const TemporaryFolder folder;
  const fs::path link = folder / "link";
  fs::create_symlink("nowhere", link);
  const std::string text = "(" + link.string() + " is a link to nowhere, which is not there)";
  EXPECT_THAT(error_of([&] { read_file(link); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { read_file(link / "below"); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { ensure_directory(link); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { ensure_directory(link / "below"); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { write_file(link / "file", ""); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { require_writable(link / "file"); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { find_inputs(link.string()); }), HasSubstr(text));
  EXPECT_EQ(dangling_link_text(folder / "none"), "");
  fs::create_directory(folder / "nowhere");
  EXPECT_EQ(dangling_link_text(link), "");
}

TEST(CanonicalPath, IsAbsoluteWhereNothingOfThePathExists) {
  EXPECT_EQ(canonical_path("no-such-name"), fs::current_path() / "no-such-name");
  EXPECT_EQ(canonical_path("no-such-name/../other"), fs::current_path() / "other");
}

TEST(ListFolder, IsSortedAndNamesAFolderThatCannotBeListed) {
  const TemporaryFolder folder;
  for (const char* name : {"b", "a", "c"}) write_file(folder / name, "");
  EXPECT_THAT(list_folder(folder.path()), ElementsAre(folder / "a", folder / "b", folder / "c"));
  EXPECT_THAT(error_of([&] { list_folder(folder / "a"); }),
              HasSubstr("cannot list " + (folder / "a").string() + ": "));
}

TEST(FindInputs, AGlobMayBeLongerThanAName) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "");
  const std::string glob = (folder / ("{" + std::string(300, 'x') + ",a}.txt")).string();
  EXPECT_THAT(find_inputs(glob), ElementsAre(folder / "a.txt"));
}

TEST(FindInputs, FindingNothingIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { find_inputs((folder / "*.txt").string()); }),
              HasSubstr("*.txt'; give a file, a folder or a glob"));
}

TEST(CreateDirectories, NamesThePathThatStandsInTheWay) {
  const TemporaryFolder folder;
  write_file(folder / "file", "text");
  EXPECT_THAT(error_of([&] { ensure_directory(folder / "file/below"); }),
              HasSubstr("cannot create the folder " + (folder / "file/below").string()));
}

}  // namespace
}  // namespace tessera
