#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "base/utf8.h"
#include "data/bpe/fixtures.h"
#include "data/prepare.h"
#include "data/prepared_rows.h"
#include "data/shards/gather.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_rows;
using testing::Row;

/// The tokens that were prepared, in their order; at most one less than there were.
Row stream_of(const PrepareOptions& options) {
  const Manifest manifest = read_manifest(options.output);
  const std::vector<Row> rows = read_rows(options.output, manifest.train);
  const Permutation permutation(rows.size(), options.seed);
  const auto context = static_cast<size_t>(options.context);
  Row stream(context * rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows[i], stream.begin() + static_cast<int64_t>(context * permutation(i)));
  }
  return stream;
}

/// Options under which stream_of() gives all that was prepared.
PrepareOptions stream_options(const fs::path& input, const fs::path& output,
                              const fs::path& tokenizer) {
  PrepareOptions options = byte_options(input, output, 2);
  options.tokenizer = tokenizer.string();
  options.held_out = 0;
  options.shard_tokens = int64_t{1} << 26;
  return options;
}

/// By the definition: encode() of each whole document, and its end.
Row expected_stream(const PrepareOptions& options, const std::vector<std::string>& documents) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  Row stream;
  for (const std::string& document : documents) {
    const Row beginning = beginning_of_document(*tokenizer, options.beginning_of_document);
    stream.insert(stream.end(), beginning.begin(), beginning.end());
    const Row tokens = tokenizer->encode(document);
    stream.insert(stream.end(), tokens.begin(), tokens.end());
    stream.push_back(tokenizer->end_of_document());
  }
  stream.resize(stream.size() - stream.size() % 2);
  return stream;
}

void write_gzip(const fs::path& path, std::string_view text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

/// A text of what depends on its neighbours, by `seed`.
std::string hostile_text(uint64_t seed, size_t size) {
  const std::vector<std::string> words{"\n",
                                       "\n\n\n",
                                       "\r\n",
                                       " ",
                                       "  ",
                                       "       ",
                                       "\t",
                                       "\u3000",
                                       "the",
                                       " the",
                                       "don't",
                                       "'re",
                                       "e\u0301\u0316",
                                       "\u0301",
                                       "\u1100",
                                       "\u1161",
                                       "\u11A8",
                                       "한",
                                       "中文",
                                       "😀",
                                       "1",
                                       "123456",
                                       "abcdefghij",
                                       "<a>",
                                       "<ab",
                                       "<abc>",
                                       "|||EMAIL|||",
                                       "                ",
                                       "=====",
                                       ".",
                                       "é"};
  const CounterRandom random(seed, "hostile");
  std::string text;
  for (uint64_t i = 0; text.size() < size; ++i) text += words[random.bits(i) % words.size()];
  return text;
}

/// A GPT-2 tokenizer with normalisation and tokens that take white space along.
fs::path hostile_tokenizer(const TemporaryFolder& folder) {
  nlohmann::json json = tokenizer_json("gpt2");
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"]["add_prefix_space"] = true;
  int id = 900;
  for (const char* content : {"<a>", "<ab", "\n\n\n", "  "}) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", content},
                                    {"single_word", std::string(content) == "<ab"},
                                    {"lstrip", true},
                                    {"rstrip", std::string(content) == "<a>"},
                                    {"normalized", std::string(content) == "  "},
                                    {"special", false}});
  }
  return folder.write("hostile/tokenizer.json", json.dump());
}

/// The same text plain, packed and as a line gives the ids of the whole text, wherever it is cut.
TEST(PrepareDocuments, IdsAreThoseOfTheWholeDocumentHoweverItIsRead) {
  const TemporaryFolder folder;
  const std::string text = hostile_text(1, 3000);
  const std::string line = nlohmann::json{{"text", text}}.dump() + "\n";
  folder.write("in/a.txt", "\xEF\xBB\xBF" + text);
  folder.write("in/b.jsonl", line);
  write_gzip(folder / "in/c.txt.gz", text);
  write_gzip(folder / "in/d.jsonl.gz", line);
  const std::vector<std::string> documents(4, text);
  int made = 0;
  for (const fs::path& tokenizer :
       {tokenizer_fixture("gpt_neox"), tokenizer_fixture("llama3"), tokenizer_fixture("several"),
        tokenizer_fixture("sentencepiece"), hostile_tokenizer(folder)}) {
    for (const int64_t item_bytes : {150, 700}) {
      PrepareOptions options =
          stream_options(folder / "in", folder / fmt::format("out-{}", made++), tokenizer);
      options.item_bytes = item_bytes;
      options.threads = 3;
      if (tokenizer.filename() == "llama3") options.beginning_of_document = "<|begin_of_text|>";
      const Manifest manifest = prepare(options, Logger()).manifest;
      EXPECT_EQ(manifest.documents, 4);
      EXPECT_EQ(stream_of(options), expected_stream(options, documents)) << tokenizer;
    }
  }
}

/// Longer than what is read at once.
TEST(PrepareDocuments, LongWordsAndWhiteSpaceAreNotCut) {
  const TemporaryFolder folder;
  std::string text;
  const CounterRandom random(1, "letters");
  for (uint64_t i = 0; i < 150000; ++i) text.push_back(static_cast<char>('a' + random.bits(i) % 7));
  for (int i = 0; i < 40000; ++i) text += "中文";
  text += std::string(100001, ' ') + "x" + std::string(100001, '\n') + "\r\n\r\n y";
  folder.write("in/a.txt", text);
  folder.write("in/b.jsonl", nlohmann::json{{"text", text}}.dump() + "\n");
  for (const char* name : {"gpt2", "llama3"}) {
    PrepareOptions options = stream_options(folder / "in", folder / name, tokenizer_fixture(name));
    options.item_bytes = 100000;
    prepare(options, Logger());
    EXPECT_EQ(stream_of(options), expected_stream(options, {text, text})) << name;
  }
}

/// Groups of three digits that are counted from the begin of all digits: a slice cannot know them.
TEST(PrepareDocuments, PartsThatDoNotJoinAreTokenizedAgain) {
  const TemporaryFolder folder;
  std::string text = "x";
  const CounterRandom random(1, "digits");
  for (uint64_t i = 0; i < 5000; ++i) text.push_back(static_cast<char>('0' + random.bits(i) % 10));
  text += " and words after them" + random_text(1, 500);
  PrepareOptions options =
      stream_options(folder.write("a.txt", text), folder / "out", tokenizer_fixture("llama3"));
  options.item_bytes = 700;
  ::testing::internal::CaptureStderr();
  prepare(options, Logger());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("did not join"));
  EXPECT_EQ(stream_of(options), expected_stream(options, {text}));

  // In ordinary text they do.
  options.inputs = {folder.write("b.txt", random_text(2, 3000)).string()};
  options.output = folder / "ordinary";
  ::testing::internal::CaptureStderr();
  prepare(options, Logger());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("did not join")));
  EXPECT_EQ(stream_of(options), expected_stream(options, {random_text(2, 3000)}));
}

TEST(PrepareDocuments, RepairedTextIsCountedOnceWhereverItIsCut) {
  const TemporaryFolder folder;
  std::string bytes;
  const CounterRandom random(1, "broken");
  for (uint64_t i = 0; i < 3000; ++i) {
    bytes.push_back("ab \n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x80\xFF"[random.bits(i) % 16]);
  }
  std::string buffer;
  int64_t replaced = 0;
  const std::string text(repair_utf8(bytes, buffer, replaced));
  ASSERT_GT(replaced, 500);
  PrepareOptions options =
      stream_options(folder.write("a.txt", bytes), folder / "out", tokenizer_fixture("llama3"));
  options.item_bytes = 100;
  EXPECT_EQ(prepare(options, Logger()).manifest.invalid_utf8, replaced);
  EXPECT_EQ(stream_of(options), expected_stream(options, {text}));
}

/// Work that an earlier version left is done again, other work is kept.
TEST(PrepareDocuments, ContinuedWorkGivesTheSameIds) {
  const TemporaryFolder folder;
  const std::string text = hostile_text(2, 3000);
  folder.write("in/a.txt", text);
  folder.write("in/b.jsonl", "no json\nno json\n" + nlohmann::json{{"text", text}}.dump() + "\n");
  PrepareOptions options =
      stream_options(folder / "in", folder / "out", tokenizer_fixture("gpt_neox"));
  options.item_bytes = 300;
  options.threads = 1;
  options.max_bad_lines = 1;
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("invalid lines"));
  const fs::path item = options.output / "work/item-00000003";
  std::string earlier = read_file(item);
  earlier[7] = '1';  // "TESITEM1"
  earlier.erase(64, 8);
  write_file(item, earlier);
  fs::remove(options.output / "work/item-00000005");
  const auto work = fs::directory_iterator(options.output / "work");
  const auto items = std::ranges::count_if(work, [](const auto& entry) {
    return entry.path().filename().string().starts_with("item-");
  });
  options.max_bad_lines = 2;
  EXPECT_EQ(prepare(options, Logger()).items_reused, items - 1);
  EXPECT_GT(items, 5);
  EXPECT_EQ(stream_of(options), expected_stream(options, {text, text}));
}

}  // namespace
}  // namespace tessera
