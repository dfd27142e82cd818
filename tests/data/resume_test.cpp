#include <chrono>
#include <csignal>
#include <thread>

#include <sys/wait.h>

#include "base/interrupt.h"
#include "data/prepare.h"
#include "data/shards/output_folder.h"
#include "data/support.h"
#include "support/fork_child.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// Runs prepare in a child process; after `microseconds` the child is killed without warning.
/// Returns true when it had finished.
bool run_and_kill(const PrepareOptions& options, int64_t microseconds) {
  const pid_t child = testing::fork_child();
  if (child == 0) {
    int status = 0;
    try {
      prepare(options, Logger());
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 1;
    }
    ::_exit(status);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "prepare failed in the child";
  return WIFEXITED(status);
}

void check_kills(PrepareOptions options, const TemporaryFolder& folder) {
  options.output = folder / "undisturbed";
  const auto begin = std::chrono::steady_clock::now();
  prepare(options, Logger());
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(
                                std::chrono::steady_clock::now() - begin)
                                .count();
  const auto expected = folder_contents(options.output);

  const CounterRandom random(1, "kills");
  int kills = 0;
  for (uint64_t round = 0; round < 6; ++round) {
    options.output = folder / fmt::format("killed-{}", round);
    bool finished = false;
    for (uint64_t attempt = 0; attempt < 8 && !finished; ++attempt) {
      // The first kill of a round comes early, so that each round has one; the others anywhere.
      const double longest = attempt == 0 ? 0.1 : 0.6;
      const double fraction = longest * random.uniform(round * 100 + attempt);
      options.threads = 1 + static_cast<int>(attempt % 3);
      finished =
          run_and_kill(options, static_cast<int64_t>(fraction * static_cast<double>(microseconds)));
      kills += finished ? 0 : 1;
    }
    prepare(options, Logger());
    ASSERT_EQ(folder_contents(options.output), expected) << "round " << round;
  }
  EXPECT_GT(kills, 0);
}

TEST(Resume, KilledRunsEndInTheSameBytes) {
  const TemporaryFolder folder;
  PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 12000)), folder / "unused", 64);
  check_kills(options, folder);
}

TEST(Resume, KilledRunsThatTrainATokenizerEndInTheSameBytes) {
  const TemporaryFolder folder;
  PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(2, 6000)), folder / "unused", 64);
  options.tokenizer = "";
  options.train_tokenizer = 300;
  check_kills(options, folder);
}

TEST(Resume, KilledRunsOverCompressedInputEndInTheSameBytes) {
  const TemporaryFolder folder;
  const fs::path corpora = fs::path(TESSERA_SOURCE) / "tests/fixtures/corpora";
  for (int i = 0; i < 12; ++i) {
    const char* name = i % 2 == 0 ? "members.jsonl.gz" : "frames.jsonl.zst";
    folder.write(fmt::format("in/{}-{}", i, name), read_file(corpora / name));
  }
  check_kills(byte_options(folder / "in", folder / "unused", 64), folder);
}

/// A folder whose work was planned but not done, as if killed there.
PrepareOptions leave_unfinished(const TemporaryFolder& folder) {
  PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 3000)), folder / "out", 64);
  prepare(options, Logger());
  const Recipe recipe = read_manifest(options.output).recipe;
  fs::remove_all(options.output);
  OutputFolder output(options.output, false);
  output.begin(recipe, {{"tokenizer.json", ""}});
  return options;
}

TEST(Resume, WorkThatIsDoneIsNotDoneAgain) {
  const TemporaryFolder folder;
  PrepareOptions options =
      byte_options(folder.write("a.jsonl", "{\"text\": \"a first line of text\"}\n{broken\n"),
                   folder / "out", 8);
  options.item_bytes = 30;  // the second item begins inside the first line and holds the second
  options.max_bad_lines = 0;
  options.threads = 1;
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("invalid lines"));
  EXPECT_TRUE(fs::exists(options.output / "work/item-00000000"));
  options.max_bad_lines = 1;
  const PrepareReport report = prepare(options, Logger());
  EXPECT_EQ(report.items, 2);
  EXPECT_EQ(report.items_reused, 2);
  EXPECT_EQ(report.manifest.bad_lines, 1);
  EXPECT_THAT(report.manifest.first_bad_lines.at(0), HasSubstr("a.jsonl:2:"));
}

TEST(Resume, OtherOptionsOnUnfinishedWorkAreRefused) {
  const TemporaryFolder folder;
  PrepareOptions options = leave_unfinished(folder);
  options.context = 128;
  const std::string message = error_of([&] { prepare(options, Logger()); });
  EXPECT_THAT(message, HasSubstr("unfinished work that was begun otherwise"));
  EXPECT_THAT(message, HasSubstr("context: 64 there, 128 now"));
  options.overwrite = true;
  EXPECT_EQ(prepare(options, Logger()).manifest.recipe.context, 128);
}

TEST(Resume, ChangedInputsOnUnfinishedWorkAreRefused) {
  const TemporaryFolder folder;
  const PrepareOptions options = leave_unfinished(folder);
  folder.write("a.txt", random_text(1, 3001));
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("inputs: "));
}

TEST(Resume, ADamagedWorkItemIsNamed) {
  const TemporaryFolder folder;
  const PrepareOptions options = leave_unfinished(folder);
  folder.write("out/work/item-00000001", "cut short");
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }),
              HasSubstr("item-00000001 is damaged; delete it"));
}

/// Makes a complete folder what it was before its last step: killed there, with all shards written.
void leave_before_the_manifest(const fs::path& output) {
  const std::string plan = recipe_to_text(read_manifest(output).recipe);
  fs::remove(output / "manifest.json");
  ensure_directory(output / "work");
  write_file(output / "work/plan.json", plan);
}

void flip_a_bit(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 4;
  write_quickly(path, bytes);
}

TEST(Resume, ShardsThatWereDamagedSinceTheyWereWrittenAreMadeAgain) {
  const TemporaryFolder folder;
  const PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 3000)), folder / "out", 64);
  const Manifest manifest = prepare(options, Logger()).manifest;
  const auto expected = folder_contents(options.output);
  const auto shards =
      static_cast<int64_t>(manifest.train.shards.size() + manifest.held_out.shards.size());
  for (const char* damaged :
       {"", "train-00001.npy", "train-00001.xxh3", "held_out-00000.npy", "tokenizer.json"}) {
    leave_before_the_manifest(options.output);
    const std::string name = damaged;
    if (!name.empty()) flip_a_bit(options.output / name);
    const PrepareReport report = prepare(options, Logger());
    const bool whole = name.empty() || name == "tokenizer.json";
    EXPECT_EQ(report.shards_reused, whole ? shards : shards - 1) << name;
    ASSERT_EQ(folder_contents(options.output), expected) << name;
  }
}

TEST(Resume, ATrainedTokenizerThatWasDamagedSinceIsTrainedAgain) {
  const TemporaryFolder folder;
  PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(2, 3000)), folder / "whole", 64);
  options.tokenizer = "";
  options.train_tokenizer = 300;
  prepare(options, Logger());
  const auto expected = folder_contents(options.output);
  options.output = folder / "out";
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("interrupted before"));
  }
  const InterruptGuard guard;  // clears the flag
  flip_a_bit(options.output / "tokenizer.model");
  prepare(options, Logger());
  EXPECT_EQ(folder_contents(options.output), expected);
}

TEST(Resume, TwoRunsIntoOneFolderAreRefused) {
  const TemporaryFolder folder;
  const PrepareOptions options =
      byte_options(folder.write("a.txt", random_text(1, 300)), folder / "out");
  {
    const OutputFolder held(options.output, false);
    EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("another process"));
  }
  EXPECT_NO_THROW(prepare(options, Logger()));
}

}  // namespace
}  // namespace tessera
