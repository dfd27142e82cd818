#include "data/prepare.h"

#include <csignal>
#include <set>

#include <nlohmann/json.hpp>
#include <sys/mount.h>

#include "base/interrupt.h"
#include "data/prepared_rows.h"
#include "data/shards/block_hashes.h"
#include "data/support.h"
#include "data/tokenizer.h"
#include "support/file_size_limit.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_rows;
using testing::Row;
using testing::write_corpus;

/// The tokens of that corpus one after another, by the definition.
Row expected_stream() {
  Row stream;
  const auto add = [&](const std::string& document) {
    for (const char byte : document) stream.push_back(static_cast<unsigned char>(byte));
    stream.push_back(256);
  };
  add(random_text(1, 2000));
  add(random_text(2, 30));
  for (uint64_t i = 0; i < 60; ++i) add(random_text(100 + i, 20));
  add(random_text(3, 500));
  return stream;
}

TEST(Prepare, EveryInstanceOnceInPermutedOrder) {
  const TemporaryFolder folder;
  const PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  const PrepareReport report = prepare(options, Logger());
  const Manifest& manifest = report.manifest;

  const Row stream = expected_stream();
  const int64_t context = options.context;
  const int64_t instances = static_cast<int64_t>(stream.size()) / context;
  EXPECT_EQ(manifest.tokens, static_cast<int64_t>(stream.size()));
  EXPECT_EQ(manifest.tokens_dropped, static_cast<int64_t>(stream.size()) % context);
  EXPECT_EQ(manifest.documents, 63);
  EXPECT_EQ(manifest.held_out.instances, (instances + 9) / 10);
  EXPECT_EQ(manifest.train.instances + manifest.held_out.instances, instances);
  EXPECT_GT(manifest.train.shards.size(), 3U);

  std::vector<Row> rows = read_rows(options.output, manifest.train);
  const std::vector<Row> held_out = read_rows(options.output, manifest.held_out);
  rows.insert(rows.end(), held_out.begin(), held_out.end());
  const Permutation permutation(static_cast<uint64_t>(instances), options.seed);
  std::set<uint64_t> sources;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t source = permutation(i);
    sources.insert(source);
    const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(source) * context;
    ASSERT_EQ(rows[i], Row(begin, begin + context)) << "instance " << i;
  }
  EXPECT_EQ(static_cast<int64_t>(sources.size()), instances);

  int64_t documents = 0;
  for (const Row& row : rows) documents += std::count(row.begin(), row.end(), 256);
  EXPECT_EQ(manifest.train.documents + manifest.held_out.documents, documents);
}

TEST(Prepare, FolderHoldsNothingButTheResult) {
  const TemporaryFolder folder;
  const PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  const PrepareReport report = prepare(options, Logger());
  std::set<std::string> expected = {"manifest.json", "tokenizer.json"};
  for (const auto& split : {report.manifest.train, report.manifest.held_out}) {
    for (const Shard& shard : split.shards) {
      expected.insert(shard.file);
      expected.insert(block_hashes_name(shard.file));
    }
  }
  std::set<std::string> found;
  for (const auto& [name, bytes] : folder_contents(options.output)) found.insert(name);
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(expected.contains("train-00000.npy") && expected.contains("held_out-00000.npy"));
  EXPECT_FALSE(fs::exists(options.output / "work"));
  EXPECT_NO_THROW(verify_prepared(options.output));
}

TEST(Prepare, ManifestSaysWhatIsThere) {
  const TemporaryFolder folder;
  const PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  const Manifest written = prepare(options, Logger()).manifest;
  const Manifest read = read_manifest(options.output);
  EXPECT_EQ(read.train.shards, written.train.shards);
  EXPECT_EQ(read.held_out.shards, written.held_out.shards);
  EXPECT_EQ(read.recipe.inputs, written.recipe.inputs);
  EXPECT_TRUE(recipe_differences(read.recipe, written.recipe).empty());
  EXPECT_EQ(read.recipe.seed, 7U);
  const auto json = nlohmann::json::parse(read_file(options.output / "manifest.json"));
  EXPECT_EQ(json["context"], 16);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["dtype"], "<u2");
  EXPECT_EQ(json["tokenizer"]["kind"], "bytes");
  EXPECT_EQ(json["tokenizer"]["vocabulary_size"], 257);
  EXPECT_EQ(json["tokenizer"]["end_of_document"], 256);
  EXPECT_EQ(json["tokenizer"]["xxh3"], load_tokenizer("bytes")->fingerprint());
  EXPECT_EQ(json["train"]["tokens"], written.train.instances * 16);
  EXPECT_EQ(json["recipe"]["inputs"].size(), 4U);
  EXPECT_EQ(json["recipe"]["inputs"][1]["bytes"], fs::file_size(folder / "in/b.txt"));
}

TEST(Prepare, ThreadsChangeNothing) {
  const TemporaryFolder folder;
  const fs::path input = write_corpus(folder);
  for (const bool train : {false, true}) {
    std::map<std::string, std::string> results[2];
    for (const int threads : {1, 3}) {
      PrepareOptions options =
          byte_options(input, folder / fmt::format("out-{}-{}", train, threads));
      options.threads = threads;
      if (train) {
        options.tokenizer = "";
        options.train_tokenizer = 300;
      }
      prepare(options, Logger());
      results[threads == 3] = folder_contents(options.output);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_GT(results[0].size(), 4U);
  }
}

TEST(Prepare, SeedOrdersAnewAndKeepsTheContent) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "one");
  options.held_out = 0;
  auto first = read_rows(options.output, prepare(options, Logger()).manifest.train);
  options.output = folder / "two";
  options.seed = 8;
  auto second = read_rows(options.output, prepare(options, Logger()).manifest.train);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST(Prepare, CompleteFolderIsLeftAlone) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  EXPECT_FALSE(prepare(options, Logger()).was_complete);
  const auto before = folder_contents(options.output);
  options.threads = 1;  // decides nothing that is written
  const PrepareReport report = prepare(options, Logger());
  EXPECT_TRUE(report.was_complete);
  EXPECT_EQ(folder_contents(options.output), before);
  EXPECT_EQ(report.manifest.train.instances, read_manifest(options.output).train.instances);

  options.context = 32;
  options.seed = 9;
  const std::string message = error_of([&] { prepare(options, Logger()); });
  EXPECT_THAT(message, HasSubstr("context: 16 there, 32 now"));
  EXPECT_THAT(message, HasSubstr("seed: 7 there, 9 now"));
  EXPECT_THAT(message, HasSubstr("choose another folder, or overwrite"));
  EXPECT_EQ(folder_contents(options.output), before);
  options.overwrite = true;
  EXPECT_EQ(prepare(options, Logger()).manifest.recipe.context, 32);
  EXPECT_EQ(read_manifest(options.output).recipe.context, 32);
}

TEST(Prepare, DamagedShardsOfACompleteFolderAreNamed) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  prepare(options, Logger());
  const auto whole = folder_contents(options.output);
  std::string shard = whole.at("train-00001.npy");
  shard.back() ^= 1;
  folder.write("out/train-00001.npy", shard);
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }),
              AllOf(HasSubstr("train-00001.npy is damaged"), HasSubstr("--overwrite")));
  fs::remove(options.output / "train-00001.npy");
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }),
              AllOf(HasSubstr("train-00001.npy is missing"), HasSubstr("--overwrite")));
  options.overwrite = true;
  prepare(options, Logger());
  EXPECT_EQ(folder_contents(options.output), whole);
}

TEST(Prepare, ChangedInputsAreSeen) {
  const TemporaryFolder folder;
  const PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  prepare(options, Logger());
  folder.write("in/b.txt", "other text");
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("b.txt (10 bytes"));
}

TEST(Prepare, OverwriteRemovesOnlyItsOwn) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  prepare(options, Logger());
  folder.write("out/notes.txt", "mine");
  folder.write("out/work/thesis.txt", "mine too");
  options.shard_tokens = 1 << 20;  // fewer shards: the others must go
  options.overwrite = true;
  const PrepareReport report = prepare(options, Logger());
  EXPECT_EQ(report.manifest.train.shards.size(), 1U);
  EXPECT_FALSE(fs::exists(options.output / "train-00001.npy"));
  EXPECT_EQ(read_file(options.output / "notes.txt"), "mine");
  EXPECT_EQ(read_file(options.output / "work/thesis.txt"), "mine too");
}

TEST(Prepare, FilesOfUnknownOriginAreNotOverwritten) {
  const TemporaryFolder folder;
  const PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  folder.write("out/train-00000.npy", "precious");
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("holds train-00000.npy"));
  EXPECT_EQ(read_file(options.output / "train-00000.npy"), "precious");
}

TEST(Prepare, ContextLongerThanTheDataNamesBothAndLeavesRoomForAnother) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(folder.write("a.txt", "twelve bytes"), folder / "out", 64);
  const std::string message = error_of([&] { prepare(options, Logger()); });
  EXPECT_THAT(message, HasSubstr("a context of 64 tokens is longer than the data, which has 13"));
  options.context = 13;
  const Manifest manifest = prepare(options, Logger()).manifest;
  EXPECT_EQ(manifest.train.instances, 1);  // a single instance is never held out
  EXPECT_EQ(manifest.held_out.instances, 0);
}

TEST(Prepare, SmallestDataHoldsOneOut) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(folder.write("a.txt", "twelve bytes"), folder / "out", 6);
  options.held_out = 0.001;
  EXPECT_EQ(prepare(options, Logger()).manifest.held_out.instances, 1);
  options.output = folder / "most";
  options.held_out = 0.999;
  EXPECT_EQ(prepare(options, Logger()).manifest.train.instances, 1);
  options.output = folder / "none";
  options.held_out = 0;
  EXPECT_EQ(prepare(options, Logger()).manifest.train.instances, 2);
}

TEST(Prepare, BadLinesAreCountedUpToALimit) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 1; i <= 200; ++i) {
    lines += i % 20 == 0 ? "{broken\n" : fmt::format("{{\"text\": \"line {}\"}}\n", i);
  }
  PrepareOptions options = byte_options(folder.write("a.jsonl", lines), folder / "out");
  options.max_bad_lines = 9;
  const std::string message = error_of([&] { prepare(options, Logger()); });
  EXPECT_THAT(message, HasSubstr("10 or more invalid lines; at most 9"));
  EXPECT_THAT(message, HasSubstr("a.jsonl:"));
  EXPECT_FALSE(fs::exists(options.output / "manifest.json"));

  options.max_bad_lines = 10;  // decides nothing that is written: the run goes on
  const PrepareReport report = prepare(options, Logger());
  EXPECT_GT(report.items_reused, 0);
  const Manifest manifest = read_manifest(options.output);
  EXPECT_EQ(manifest.bad_lines, 10);
  EXPECT_EQ(manifest.documents, 190);
  ASSERT_EQ(manifest.first_bad_lines.size(), 5U);
  EXPECT_THAT(manifest.first_bad_lines[0], HasSubstr("a.jsonl:20: invalid JSON"));
  EXPECT_THAT(manifest.first_bad_lines[4], HasSubstr("a.jsonl:100: invalid JSON"));
  options.max_bad_lines = 3;
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("at most 3"));
}

TEST(Prepare, AnInputOfBadLinesAloneNamesTheFirstAndWhy) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(
      folder.write("a.jsonl", "{\"body\": \"x\"}\n[1]\n{\"text\": \"\"}\n"), folder / "out");
  const std::string found =
      "no documents with text: 1 documents are empty, and 2 lines are invalid, the first of them:";
  for (const int64_t pieces : {0, 300}) {  // 300: with a tokenizer to train, into the same folder
    options.train_tokenizer = pieces;
    options.tokenizer = pieces == 0 ? "bytes" : "";
    EXPECT_THAT(error_of([&] { prepare(options, Logger()); }),
                AllOf(HasSubstr(found), HasSubstr("a.jsonl:1: no field \"text\""),
                      HasSubstr("a.jsonl:2: not a JSON object")));
  }
}

TEST(Prepare, BrokenUtf8IsCountedOrRefused) {
  const TemporaryFolder folder;
  PrepareOptions options =
      byte_options(folder.write("a.txt", "caf\xE9 and more text to fill it\xFF"), folder / "out");
  options.fail_on_invalid_utf8 = true;
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("broken UTF-8"));
  options.fail_on_invalid_utf8 = false;
  prepare(options, Logger());
  EXPECT_EQ(read_manifest(options.output).invalid_utf8, 2);
}

TEST(Prepare, EmptyFilesAndDocumentsAreCounted) {
  const TemporaryFolder folder;
  folder.write("in/a.txt", "some text that is long enough");
  folder.write("in/b.txt", "");
  folder.write("in/c.jsonl", "{\"text\": \"\"}\n");
  const Manifest manifest = prepare(byte_options(folder / "in", folder / "out"), Logger()).manifest;
  EXPECT_EQ(manifest.empty_files, 1);
  EXPECT_EQ(manifest.empty_documents, 1);
  EXPECT_EQ(manifest.documents, 1);
  const PrepareOptions only_empty = byte_options(folder / "in/c.jsonl", folder / "other");
  EXPECT_THAT(error_of([&] { prepare(only_empty, Logger()); }), HasSubstr("no documents"));
}

TEST(Prepare, ShowsProgressInBytesTokensAndTime) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(folder.write("a.txt", random_text(1, 900)), folder / "out");
  options.progress = true;
  ::testing::internal::CaptureStderr();
  prepare(options, Logger());
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown,
              ::testing::ContainsRegex("tokenizing 100% .* KiB of .* KiB, .* k tokens, .* left"));
  EXPECT_THAT(shown, ::testing::ContainsRegex("writing shards 100% .* of .* instances, .* left"));
}

TEST(Prepare, OptionsOutOfRangeAreNamed) {
  const TemporaryFolder folder;
  const PrepareOptions good = byte_options(folder.write("a.txt", "text"), folder / "out");
  const auto message = [&](auto&& change) {
    PrepareOptions options = good;
    change(options);
    return error_of([&] { prepare(options, Logger()); });
  };
  EXPECT_THAT(message([](auto& o) { o.context = 1; }), HasSubstr("context of 1"));
  EXPECT_THAT(message([](auto& o) { o.held_out = 1; }), HasSubstr("held-out fraction of 1"));
  EXPECT_THAT(message([](auto& o) { o.train_tokenizer = 500; }), HasSubstr("both were"));
  EXPECT_THAT(message([](auto& o) { o.tokenizer = ""; }), HasSubstr("neither was"));
  EXPECT_THAT(message([](auto& o) { o.tokenizer = "absent.model"; }), HasSubstr("absent.model"));
  EXPECT_THAT(message([](auto& o) { o.inputs = {}; }), HasSubstr("no input"));
  EXPECT_THAT(message([](auto& o) { o.output = ""; }), HasSubstr("no output"));
  EXPECT_THAT(message([](auto& o) { o.threads = -1; }), HasSubstr("threads is -1"));
  EXPECT_FALSE(fs::exists(good.output)) << "nothing is made before the options are right";
}

TEST(Prepare, UnwritableOutputIsAnError) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "not a folder");
  const fs::path input = folder.write("a.txt", "text");
  EXPECT_THAT(error_of([&] { prepare(byte_options(input, file / "out"), Logger()); }),
              HasSubstr("file/out"));
}

TEST(Prepare, FullDiskIsAnErrorThatNamesTheFolder) {
  const TemporaryFolder folder;
  const fs::path disk = folder / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a small disk is not allowed here";
  }
  const PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 40000)), disk / "out");
  const std::string message = error_of([&] { prepare(options, Logger()); });
  const bool complete = fs::exists(options.output / "manifest.json");
  ::umount(disk.c_str());
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_THAT(message, HasSubstr((disk / "out").string()));
  EXPECT_FALSE(complete);
}

TEST(Prepare, AFailedWriteIsAnErrorThatNamesTheFileAndTheNextRunContinues) {
  const TemporaryFolder folder;
  const fs::path input = folder.write("a.txt", random_text(1, 40000));
  PrepareOptions options = byte_options(input, folder / "undisturbed");
  options.shard_tokens = int64_t{1} << 20;  // one shard, far larger than a work item
  prepare(options, Logger());
  options.output = folder / "out";
  std::string message;
  {
    const FileSizeLimit limit(20'000);
    message = error_of([&] { prepare(options, Logger()); });
  }
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr((folder / "out").string()));
  EXPECT_FALSE(fs::exists(options.output / "manifest.json"));
  EXPECT_GT(prepare(options, Logger()).items_reused, 0);
  EXPECT_EQ(folder_contents(options.output), folder_contents(folder / "undisturbed"));
}

TEST(Prepare, InterruptStopsCleanlyAndTheNextRunContinues) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "undisturbed");
  prepare(options, Logger());
  options.output = folder / "out";
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("to continue"));
  }
  EXPECT_FALSE(fs::exists(options.output / "manifest.json"));
  const InterruptGuard guard;  // clears the flag
  prepare(options, Logger());
  EXPECT_EQ(folder_contents(options.output), folder_contents(folder / "undisturbed"));
}

TEST(Prepare, InterruptedTrainingOfATokenizerIsKept) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  options.tokenizer = "";
  options.train_tokenizer = 300;
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    EXPECT_THAT(error_of([&] { prepare(options, Logger()); }),
                HasSubstr("interrupted before tokenizing"));
  }
  EXPECT_TRUE(fs::exists(options.output / "tokenizer.model"));
  const InterruptGuard guard;  // clears the flag
  prepare(options, Logger());
  EXPECT_NO_THROW(verify_prepared(options.output));
}

}  // namespace
}  // namespace tessera
