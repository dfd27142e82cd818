#include "data/corpus/documents.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/utf8.h"
#include "data/corpus/plain_text.h"
#include "data/read_documents.h"
#include "data/support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_all;

Corpus scan(const fs::path& path) { return scan_inputs({path.string()}, "", Logger()); }

std::string repaired(std::string_view text, int64_t& count) {
  std::string buffer;
  count = 0;
  return std::string(repair_utf8(text, buffer, count));
}

TEST(Utf8, ReplacesMaximalBrokenParts) {
  const std::string r = "\xEF\xBF\xBD";
  const std::vector<std::tuple<std::string, std::string, int64_t>> cases = {
      {"plain é 😀", "plain é 😀", 0},
      {"a\xFF"
       "b",
       "a" + r + "b", 1},
      {"\xC3", r, 1},
      {"\xE2\x82", r, 1},  // a start cut short is one part
      {"\xE2\x82z", r + "z", 1},
      {"\xF0\x9F\x98", r, 1},
      {"\xC0\x80", r + r, 2},                  // overlong
      {"\xE0\x80\x80", r + r + r, 3},          // overlong
      {"\xED\xA0\x80", r + r + r, 3},          // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r, 4},  // above U+10FFFF
      {"\x80\x80", r + r, 2},
      {"caf\xE9 au lait", "caf" + r + " au lait", 1},  // Latin-1
  };
  for (const auto& [text, expected, count] : cases) {
    int64_t found = 0;
    EXPECT_EQ(repaired(text, found), expected);
    EXPECT_EQ(found, count) << expected;
  }
}

RC_GTEST_PROP(Utf8, RepairingIsIdempotent, (const std::string& bytes)) {
  int64_t count = 0;
  const std::string once = repaired(bytes, count);
  int64_t again = 0;
  RC_ASSERT(repaired(once, again) == once);
  RC_ASSERT(again == 0);
  RC_ASSERT((count == 0) == (once == bytes));
}

TEST(Documents, TextFileIsOneDocumentHoweverItIsCut) {
  const TemporaryFolder folder;
  const std::string text = random_text(1, 3000);
  const Corpus corpus = scan(folder.write("a.txt", text));
  for (const int64_t item_bytes : {1, 7, 100, 5000, 1 << 20}) {
    EXPECT_THAT(read_all(corpus, item_bytes).documents, ElementsAre(text)) << item_bytes;
  }
}

RC_GTEST_PROP(Documents, NothingIsLostOrDoubledByCuts, ()) {
  const TemporaryFolder folder;
  const auto text = *rc::gen::container<std::string>(
      rc::gen::element('a', 'b', ' ', '\n', '\xC3', '\xA9', '\xF0', '\x9F', '\x98', '\x80'));
  RC_PRE(!text.empty());
  const Corpus corpus = scan(folder.write("a.txt", text));
  const testing::ReadDocuments whole = read_all(corpus, 1 << 20);
  int64_t broken = 0;
  RC_ASSERT(whole.documents == std::vector<std::string>{repaired(text, broken)});
  const testing::ReadDocuments cut = read_all(corpus, *rc::gen::inRange<int64_t>(1, 12));
  RC_ASSERT(cut.documents == whole.documents);
  RC_ASSERT(cut.statistics.invalid_utf8 == broken);
}

TEST(Documents, LongTextComesInPieces) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 3 * kLongestPiece) text += "😀é";  // neither lines nor spaces
  const testing::ReadDocuments read = read_all(scan(folder.write("a.txt", text)), 200000);
  EXPECT_THAT(read.documents, ElementsAre(text));
  EXPECT_LE(read.longest_piece, kLongestPiece);
  EXPECT_EQ(read.statistics.invalid_utf8, 0);

  const Corpus jsonl = scan(folder.write("a.jsonl", "{\"text\": \"" + text + "\"}\n"));
  const testing::ReadDocuments line = read_all(jsonl, 1000);
  EXPECT_THAT(line.documents, ElementsAre(text));
  EXPECT_LE(line.longest_piece, kLongestPiece);
}

TEST(Documents, FirstPieceCutsAtLinesThenSpacesThenCharacters) {
  EXPECT_EQ(first_piece("short", 10), "short");
  EXPECT_EQ(first_piece("ab\ncd ef gh", 8), "ab\n");
  EXPECT_EQ(first_piece("abcd ef gh", 8), "abcd ef");
  EXPECT_EQ(first_piece("abcdéfghij", 8).size(), 6U);  // é begins at 4, and 5 is inside of it
}

TEST(Documents, JsonLines) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a.jsonl",
                                     "\xEF\xBB\xBF{\"id\": 1, \"text\": \"one\\n\\u00e9\"}\r\n"
                                     "\n   \n"
                                     "{\"text\": \"\"}\n"
                                     "{\"text\": \"two\", \"meta\": {\"text\": \"no\"}}");
  for (const int64_t item_bytes : {1, 10, 1000}) {
    const testing::ReadDocuments read = read_all(scan(path), item_bytes);
    EXPECT_THAT(read.documents, ElementsAre("one\né", "two"));
    EXPECT_EQ(read.statistics.empty_documents, 1);
    EXPECT_EQ(read.statistics.bad_lines, 0);
  }
}

TEST(Documents, ATextFieldThatStandsTwiceIsABadLine) {
  const TemporaryFolder folder;
  const Corpus corpus = scan(folder.write("a.jsonl",
                                          "{\"text\": \"one\", \"id\": 1, \"text\": \"two\"}\n"
                                          "{\"id\": 1, \"id\": 2, \"text\": \"three\"}\n"));
  const testing::ReadDocuments read = read_all(corpus, 1000);
  EXPECT_THAT(read.documents, ElementsAre("three"));
  ASSERT_EQ(read.statistics.first_bad_lines.size(), 1U);
  EXPECT_EQ(read.statistics.first_bad_lines[0].reason, "several fields \"text\"");

  const Corpus nested = scan(folder.write("b.jsonl",
                                          "{\"a\": {\"b\": \"x\"}, \"a\": {\"b\": \"y\"}}\n"
                                          "{\"a\": {\"b\": \"x\", \"b\": \"y\"}}\n"
                                          "{\"a\": {\"b\": \"x\"}, \"a.b\": \"y\"}\n"));
  const testing::ReadDocuments dotted = read_all(nested, 1000, {"a.b", false});
  EXPECT_THAT(dotted.documents, ElementsAre("y"));
  EXPECT_EQ(dotted.statistics.bad_lines, 2);
}

TEST(Documents, TextFieldHasAName) {
  const TemporaryFolder folder;
  const Corpus corpus = scan(folder.write("a.ndjson", "{\"content\": \"x\", \"text\": \"y\"}\n"));
  EXPECT_THAT(read_all(corpus, 100, {"content", false}).documents, ElementsAre("x"));
}

TEST(Documents, BadLinesAreNamedWithFileLineAndReason) {
  const TemporaryFolder folder;
  const Corpus corpus = scan(folder.write("a.jsonl",
                                          "{\"text\": \"good\"}\n"
                                          "{\"text\": \"open\n"
                                          "[1]\n"
                                          "{\"other\": 1}\n"
                                          "{\"text\": 5}\n"
                                          "{\"text\": \"x\"} trailing\n"
                                          "{\"text\": null}\n"
                                          "{\"text\": \"good too\"}\n"));
  for (const int64_t item_bytes : {5, 1000}) {
    const testing::ReadDocuments read = read_all(corpus, item_bytes);
    EXPECT_THAT(read.documents, ElementsAre("good", "good too"));
    EXPECT_EQ(read.statistics.bad_lines, 6);
    ASSERT_EQ(read.statistics.first_bad_lines.size(), kNamedBadLines);
    std::vector<std::string> described;
    for (const BadLine& line : read.statistics.first_bad_lines) {
      described.push_back(describe_bad_line(corpus, line));
    }
    EXPECT_THAT(described[0], HasSubstr("a.jsonl:2: invalid JSON"));
    EXPECT_THAT(described[1], HasSubstr("a.jsonl:3: not a JSON object"));
    EXPECT_THAT(described[2], HasSubstr("a.jsonl:4: no field \"text\""));
    EXPECT_THAT(described[3], HasSubstr("a.jsonl:5: the field \"text\" is not a string"));
    EXPECT_THAT(described[4], HasSubstr("a.jsonl:6: invalid JSON"));
  }
}

TEST(Documents, BrokenUtf8IsReplacedAndCountedOrRefused) {
  const TemporaryFolder folder;
  const Corpus text = scan(folder.write("a.txt", "fine\ncaf\xE9\n\xFF\n"));
  const testing::ReadDocuments read = read_all(text, 1000);
  EXPECT_THAT(read.documents, ElementsAre("fine\ncaf\uFFFD\n\uFFFD\n"));
  EXPECT_EQ(read.statistics.invalid_utf8, 2);
  EXPECT_THAT(error_of([&] { read_all(text, 1000, {"text", true}); }), HasSubstr("a.txt"));

  const Corpus jsonl = scan(folder.write("b.jsonl",
                                         "{\"text\": \"caf\xE9\"}\n"
                                         "{\"text\": \"\\ud83d alone \\\\ud83d \\ud83d\\ude00\"}\n"
                                         "{\"text\": \"\\ude00\", \"bad\": \"\\q\"}\n"));
  const testing::ReadDocuments lines = read_all(jsonl, 1000);
  EXPECT_THAT(lines.documents, ElementsAre("caf\uFFFD", "\uFFFD alone \\ud83d 😀"));
  EXPECT_EQ(lines.statistics.invalid_utf8, 2);
  EXPECT_EQ(lines.statistics.bad_lines, 1);
  EXPECT_THAT(error_of([&] { read_all(jsonl, 1000, {"text", true}); }), HasSubstr("line 1"));
}

TEST(Documents, AByteOrderMarkAloneIsAnEmptyDocument) {
  const TemporaryFolder folder;
  const testing::ReadDocuments read = read_all(scan(folder.write("a.txt", "\xEF\xBB\xBF")), 1000);
  EXPECT_TRUE(read.documents.empty());
  EXPECT_EQ(read.statistics.empty_documents, 1);
  EXPECT_THAT(read_all(scan(folder.write("b.txt", "\xEF\xBB\xBFhi")), 1).documents,
              ElementsAre("hi"));
}

TEST(Corpus, FindsFilesFoldersAndGlobsInOrder) {
  const TemporaryFolder folder;
  folder.write("in/b.txt", "b");
  folder.write("in/deep/a.jsonl", "{}");
  folder.write("in/empty.txt", "");
  folder.write("other/z1.txt", "z");
  folder.write("other/z2.txt", "zz");
  folder.write("in/out/train-00000.npy", "excluded");
  const std::string root = folder.path().string();
  const Corpus corpus = scan_inputs({root + "/other/z?.txt", root + "/in", root + "/in/b.txt"},
                                    root + "/in/out/", Logger());
  std::vector<std::string> names;
  for (const CorpusFile& file : corpus.files) names.push_back(file.path.filename().string());
  EXPECT_THAT(names, ElementsAre("z1.txt", "z2.txt", "b.txt", "a.jsonl", "empty.txt"));
  EXPECT_EQ(corpus.bytes, 6);
  EXPECT_EQ(corpus.empty_files, 1);
  EXPECT_EQ(corpus.files[3].format, Format::jsonl);
}

TEST(Corpus, RefusesWhatHoldsNoText) {
  const TemporaryFolder folder;
  const std::string empty = folder.write("empty.txt", "").string();
  const std::string gzip = folder.write("a.txt", "\x1F\x8B\x08 rest").string();
  EXPECT_THAT(error_of([&] { scan_inputs({empty}, "", Logger()); }), HasSubstr("all empty"));
  EXPECT_THAT(error_of([&] { scan_inputs({gzip}, "", Logger()); }), HasSubstr("gzip"));
  EXPECT_THAT(error_of([&] { scan_inputs({}, "", Logger()); }), HasSubstr("no input"));
  EXPECT_THAT(error_of([&] { scan_inputs({empty + "x*"}, "", Logger()); }),
              HasSubstr("no input file matches"));
}

TEST(Corpus, ItemsSplitLargeFilesAndJoinSmallOnes) {
  Corpus corpus;
  for (const int64_t size : {3, 4, 0, 25, 5}) corpus.files.push_back({"f", size, 0, Format::text});
  EXPECT_THAT(plan_items(corpus, 10),
              ElementsAre(WorkItem{{0, 0, 3}, {1, 0, 4}, {3, 0, 10}}, WorkItem{{3, 10, 20}},
                          WorkItem{{3, 20, 25}, {4, 0, 5}}));
}

/// A file of some megabytes, cut short once the first of its text has been given.
std::string error_of_a_cut(const fs::path& path, const std::string& content) {
  write_file(path, content);
  const Corpus corpus = scan(path);
  const Slice whole{.file = 0, .begin = 0, .end = corpus.files[0].size};
  ReadStatistics statistics;
  bool is_cut = false;
  return error_of([&] {
    read_slice(corpus, whole, {}, statistics, [&](std::string_view piece, bool) {
      if (!piece.empty() && !std::exchange(is_cut, true)) fs::resize_file(path, 1000);
    });
  });
}

TEST(Documents, AFileThatIsCutWhileItIsReadIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  const std::string text = random_text(3, 1'500'000);
  EXPECT_THAT(error_of_a_cut(folder / "a.txt", text),
              AllOf(HasSubstr((folder / "a.txt").string()), HasSubstr("was cut short")));
  std::string lines;
  for (size_t at = 0; at < text.size(); at += 1000) {
    std::string line = text.substr(at, 1000);
    std::ranges::replace(line, '\n', ' ');
    lines += "{\"text\": \"" + line + "\"}\n";
  }
  EXPECT_THAT(error_of_a_cut(folder / "b.jsonl", lines),
              AllOf(HasSubstr((folder / "b.jsonl").string()), HasSubstr("was cut short")));
}

TEST(PlainText, AFileThatIsCutWhileItIsReadIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", random_text(4, 100'000));
  const Corpus corpus = scan(folder / "a.txt");
  const ReadOptions options;
  PlainText text(corpus.files[0], options);
  OffsetMap offsets;
  EXPECT_EQ(text.read(0, 100, 0, offsets).size(), 100U);
  fs::resize_file(folder / "a.txt", 1000);
  EXPECT_THAT(error_of([&] { text.read(5000, 6000, 100, offsets); }),
              AllOf(HasSubstr((folder / "a.txt").string()), HasSubstr("was cut short")));
  EXPECT_THAT(error_of([&] { text.next_cut(5000); }), HasSubstr("was cut short"));
  EXPECT_THAT(error_of([&] { text.count_broken(0, text.end()); }), HasSubstr("was cut short"));
}

TEST(Documents, AFileThatChangedIsRefused) {
  const TemporaryFolder folder;
  const Corpus corpus = scan(folder.write("a.txt", "before"));
  folder.write("a.txt", "after this");
  EXPECT_THAT(error_of([&] { read_all(corpus, 100); }), HasSubstr("changed while it was read"));
}

}  // namespace
}  // namespace tessera
