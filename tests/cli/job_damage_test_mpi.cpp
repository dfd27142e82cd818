// Jobs of several processes of which one is not as the others are, or whose files are damaged. Each
// ends by an error that says who, what and what was expected, or goes on from what is whole.
// docs/cluster.md lists the kinds.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/process_runs.h"
#include "support/address_limit.h"
#include "support/names_in.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::joined;
using testing::occurrences;
using ::testing::UnorderedElementsAre;

class JobDamage : public testing::ProcessRuns {
 protected:
  /// Runs two processes. `other` is what mpirun starts as rank 1: its own options, the program and
  /// its arguments.
  Result run_beside(const Arguments& arguments, const Arguments& other) const {
    return run_processes(1, arguments, joined({":", "-n", "1"}, other));
  }
  /// The same where rank 1 is in another folder than rank 0, which is in folder_.
  Result run_elsewhere(const Arguments& arguments) const {
    const auto in = [&](const fs::path& folder) {
      return joined({"--wdir", folder.string(), TESSERA_PROGRAM}, arguments);
    };
    const Arguments launcher{TESSERA_RUN_PROCESSES, "1"};
    testing::Subprocess started(
        joined(joined(joined(launcher, in(folder_.path())), {":", "-n", "1"}), in(elsewhere())),
        folder_ / "processes.txt");
    const int status = started.wait();
    return {status, started.output()};
  }
  fs::path elsewhere() const { return folder_ / "elsewhere"; }
  void SetUp() override {
    ProcessRuns::SetUp();
    ensure_directory(elsewhere());
  }

  static void expect_error_of_rank_one(const Result& result, const std::string& words) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, AllOf(HasSubstr("error: rank 1 ("), HasSubstr(words)));
    EXPECT_EQ(occurrences(result.output, "tessera: error"), 1U) << result.output;
  }
  /// A run of two ranks with the checkpoints of the steps 2 and 4.
  void train_with_checkpoints(const std::string& name) const {
    const Result result = run_processes(2, training(name, kEverySecond));
    ASSERT_EQ(result.status, 0) << result.output;
  }
  static void flip_byte(const fs::path& path, size_t from_end) {
    std::string bytes = read_file(path);
    bytes[bytes.size() - from_end] ^= 1;
    write_file(path, bytes);
  }

  const Arguments kEverySecond = set("checkpoint.every", "2");
};

TEST_F(JobDamage, AnotherProgram) {
  const fs::path other = folder_ / "tessera";
  write_file(other, read_file(TESSERA_PROGRAM) + "x");  // runs as before, and is not the same
  fs::permissions(other, fs::perms::owner_all);
  expect_error_of_rank_one(
      run_beside(training("refused"), joined({other.string()}, training("refused"))),
      "has another value of the program than rank 0 (");
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, AnotherTokenizer) {
  const Result prepared =
      run({"prepare", "--input", (folder_ / "text.txt").string(), "--output",
           (elsewhere() / "data").string(), "--train-tokenizer", "280", "--context", "32"});
  ASSERT_EQ(prepared.status, 0) << prepared.output;
  expect_error_of_rank_one(run_elsewhere(training("refused", set("data.directory", "\"data\""))),
                           "has another value of the tokenizer than rank 0 (");
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, NoDataOnOneRank) {
  expect_error_of_rank_one(run_elsewhere(training("refused", set("data.directory", "\"data\""))),
                           "data.directory (data) holds no prepared data");
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, AnotherLayout) {
  const Arguments other = training("refused", set("parallel.tensor", "2"));
  expect_error_of_rank_one(run_beside(training("refused"), joined({TESSERA_PROGRAM}, other)),
                           "has another value of the configuration than rank 0 (");
  expect_error_of_rank_one(
      run_beside(training("refused"),
                 joined({TESSERA_PROGRAM}, training("refused", set("parallel.tensor", "3")))),
      "parallel.tensor (3)");
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, ARunFolderThatIsNotShared) {
  Arguments arguments = joined(training("unused"), set("run.directory", "\"mine\""));
  expect_error_of_rank_one(run_elsewhere(arguments),
                           "mine is another folder here than for rank 0: its run.lock is not to be "
                           "seen; run.directory must be in a file system that all ranks share");
  EXPECT_FALSE(path_exists(elsewhere() / "mine"));
}

TEST_F(JobDamage, ARunFolderThatCannotBeMade) {
  write_file(folder_ / "file", "no folder");
  const Result file = run_processes(2, training("file"));
  EXPECT_EQ(file.status, 1);
  EXPECT_THAT(file.output, HasSubstr((folder_ / "file").string()));
  EXPECT_EQ(occurrences(file.output, "tessera: error"), 1U) << file.output;
  EXPECT_EQ(read_file(folder_ / "file"), "no folder");
  // Not even root may make a folder there.
  const Result refused =
      run_processes(2, joined(training("unused"), set("run.directory", "\"/sys/run\"")));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("/sys/run"));
  EXPECT_EQ(occurrences(refused.output, "tessera: error"), 1U) << refused.output;
}

TEST_F(JobDamage, AFullDiskOnOneNode) {
  const fs::path saves = folder_ / "full" / "checkpoints";
  const Arguments arguments = training("full", kEverySecond);
  const Result result = run_beside(
      arguments, joined({"env", std::string("LD_PRELOAD=") + TESSERA_FAULT_LIBRARY,
                         "TESSERA_FAULT=broken:1:" +
                             (fs::canonical(folder_.path()) / "full" / "checkpoints").string(),
                         "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", TESSERA_PROGRAM},
                        arguments));
  expect_error_of_rank_one(result, "No space left on device");
  // It is found before the first step.
  EXPECT_THAT(result.output, HasSubstr("step-00000000.partial/rank-00001.partial"));
  EXPECT_FALSE(path_exists(saves)) << "nothing was saved, and nothing is left";
}

TEST_F(JobDamage, OfACheckpointIsNamedAndTheOneBeforeItServes) {
  train_with_checkpoints("whole");
  const std::string piece = "parameters-rank-00001.safetensors";
  struct Damage {
    std::string name;
    std::function<void(const fs::path& newest)> make;
    std::string words;
  };
  const std::vector<Damage> kinds{
      {"missing", [&](const fs::path& newest) { fs::remove(newest / piece); }, piece},
      {"truncated",
       [&](const fs::path& newest) {
         fs::resize_file(newest / piece, fs::file_size(newest / piece) - 1);
       },
       piece},
      {"byte", [&](const fs::path& newest) { flip_byte(newest / piece, 1); }, piece},
      {"manifest", [&](const fs::path& newest) { flip_byte(newest / "manifest.json", 100); },
       "manifest.json"},
      {"two-steps",
       [&](const fs::path& newest) {
         fs::copy_file(newest.parent_path() / "step-00000002" / piece, newest / piece,
                       fs::copy_options::overwrite_existing);
       },
       piece}};
  for (const Damage& kind : kinds) {
    SCOPED_TRACE(kind.name);
    fs::copy(folder_ / "whole", folder_ / kind.name, fs::copy_options::recursive);
    kind.make(checkpoint(kind.name));
    const Result resumed =
        run_processes(2, joined(training(kind.name, kEverySecond), {"--resume"}));
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output,
                AllOf(HasSubstr(checkpoint(kind.name).string()), HasSubstr("passed over: "),
                      HasSubstr(kind.words), HasSubstr("going on after step 2")));
    for (const std::string& file : testing::names_in(checkpoint("whole"))) {
      if (!file.ends_with(".safetensors")) continue;
      EXPECT_TRUE(read_file(checkpoint("whole") / file) == read_file(checkpoint(kind.name) / file));
    }
  }
  fs::remove_all(checkpoint("missing", 2));
  fs::remove(checkpoint("missing") / piece);
  const Result none = run_processes(2, joined(training("missing"), {"--resume"}));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr(piece));
  EXPECT_EQ(occurrences(none.output, "tessera: error"), 1U) << none.output;
}

/// The folder of a run whose checkpoints rank 1 sees elsewhere.
TEST_F(JobDamage, AnOlderCheckpointOnOneNode) {
  train_with_checkpoints("mine");
  const Arguments resume = joined(training("unused", kEverySecond),
                                  joined(set("run.directory", "\"mine\""), {"--resume"}));
  fs::copy(folder_ / "mine", elsewhere() / "mine", fs::copy_options::recursive);
  fs::create_symlink(folder_ / "mine" / "run.lock", elsewhere() / "mine" / "run.lock");
  fs::remove_all(elsewhere() / "mine" / "checkpoints" / "step-00000004");
  expect_error_of_rank_one(run_elsewhere(resume),
                           "this rank sees those of step 2, and rank 0 those of step 2, 4");
  EXPECT_TRUE(path_exists(checkpoint("mine")));
  // A checkpoint of the same step that another run has saved.
  const Result other = run(training("other", joined(kEverySecond, set("train.global_batch", "8"))));
  ASSERT_EQ(other.status, 0) << other.output;
  fs::copy(checkpoint("other"), elsewhere() / "mine" / "checkpoints" / "step-00000004",
           fs::copy_options::recursive);
  expect_error_of_rank_one(run_elsewhere(resume), "sees another checkpoint at mine");
  // So it is with the weights that a run begins with.
  const Arguments begin = joined(training("begun"), set("checkpoint.initial", "\"mine\""));
  expect_error_of_rank_one(run_elsewhere(begin), "sees another checkpoint at mine");
}

TEST_F(JobDamage, ARankThatIsMissingAtTheStart) {
  const auto started =
      start(1, training("refused", set("run.rank_timeout", "1")), {":", "-n", "1", "sleep", "100"});
  EXPECT_EQ(started->wait(), 1);
  EXPECT_THAT(
      started->output(),
      AllOf(HasSubstr("error: rank 0 ("), HasSubstr("is here, but after 1 s (run.rank_timeout"),
            HasSubstr("not all of the 2 processes that mpirun started are")));
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, AHostThatIsNotThere) {
  const Arguments host{"--host", "no-such-host:2", TESSERA_PROGRAM};
  const Arguments launcher{TESSERA_RUN_PROCESSES, "2"};
  testing::Subprocess by_name(joined(joined(launcher, host), training("refused")),
                              folder_ / "processes.txt");
  EXPECT_NE(by_name.wait(), 0);
  EXPECT_THAT(by_name.output(), HasSubstr("no-such-host"));
  EXPECT_FALSE(path_exists(folder_ / "refused"));
  write_file(folder_ / "hosts", "no-such-host slots=2\n");
  testing::Subprocess by_file(joined({TESSERA_RUN_CLUSTER, "--hosts", (folder_ / "hosts").string(),
                                      "--ranks", "2", TESSERA_PROGRAM},
                                     training("refused")),
                              folder_ / "cluster.txt");
  EXPECT_NE(by_file.wait(), 0);
  EXPECT_THAT(by_file.output(), HasSubstr("no-such-host"));
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(JobDamage, TooLittleMemoryForOneRank) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs more";
  // Its arena takes as many addresses as it may have in all.
  const Arguments large = training("refused", set("model.hidden_size", "2048"));
  const Result result = run_beside(
      large, joined({"sh", "-c", "ulimit -v 800000; exec \"$@\"", "sh", TESSERA_PROGRAM}, large));
  expect_error_of_rank_one(result, "Cannot allocate memory; raise the limit on virtual memory");
}

}  // namespace
}  // namespace tessera
