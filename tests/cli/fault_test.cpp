#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/verify_checkpoint.h"
#include "cli/program.h"
#include "fault/preload.h"
#include "support/names_in.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::names_in;
using testing::PreloadedFault;
using Result = testing::ProgramResult;

constexpr int64_t kPoints = 2;  // of a run at which each fault is tried

/// A run that saves at each of three steps and keeps one checkpoint, under faults of its folder of
/// checkpoints. Every operation of a save in turn is tried in tests/checkpoint/fault_test.cpp.
class FaultyRun : public ::testing::Test {
 protected:
  FaultyRun() : root_(fs::canonical(folder_.path())) {
    testing::prepare_small_data(root_, 32, 60);
    write_file(root_ / "config.toml", testing::small_config(root_));
    const PreloadedFault count("count:0:" + saves("whole").string(), (root_ / "seen").string());
    const Result result = train("whole");
    EXPECT_EQ(result.status, 0) << result.output;
    operations_ = std::stoll(read_file(root_ / "seen"));
    EXPECT_GT(operations_, 100);
  }

  fs::path saves(const std::string& run) const { return root_ / run / "checkpoints"; }
  Result train(const std::string& run, bool resume = false) const {
    std::vector<std::string> arguments{"train", (root_ / "config.toml").string(), "--quiet"};
    for (const char* set : {"train.steps=3", "optimizer.warmup_steps=1", "checkpoint.every=1",
                            "checkpoint.keep=1", "train.precision=\"fp32\""}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    arguments.insert(arguments.end(), {"--set", "run.directory=" + (root_ / run).string()});
    if (resume) arguments.emplace_back("--resume");
    return testing::run_program(folder_, std::move(arguments));
  }
  /// The hashes of the tensors of a run's last checkpoint.
  std::vector<uint64_t> hashes(const std::string& run) const {
    std::vector<uint64_t> hashes;
    for (const CheckpointTensor& tensor :
         read_checkpoint_manifest(checkpoint_path(saves(run), 3)).tensors) {
      for (const SavedPiece& piece : tensor.pieces) {
        hashes.insert(hashes.end(), piece.hashes.begin(), piece.hashes.end());
      }
    }
    return hashes;
  }

  /// Runs under the fault at some operations spread over the run, and goes on without it.
  /// Gives how many runs ended with an error.
  int expect_no_loss(const std::string& fault, const ::testing::Matcher<int>& status) const {
    int errors = 0;
    for (int64_t point = 1; point <= kPoints; ++point) {
      const std::string run = fault + std::to_string(point);
      const int64_t at = operations_ * point / (kPoints + 1);
      SCOPED_TRACE(run + " at " + std::to_string(at));
      Result faulty;
      {
        const PreloadedFault armed(fmt::format("{}:{}:{}", fault, at, saves(run).string()));
        faulty = train(run);
      }
      EXPECT_THAT(faulty.status, status) << faulty.output;
      if (faulty.status == 1) {
        ++errors;
        EXPECT_THAT(faulty.output, HasSubstr(saves(run).string()));
      }
      const CheckpointListing listing = list_checkpoints(saves(run));
      EXPECT_THAT(listing.broken, IsEmpty());
      for (const FoundCheckpoint& found : listing.complete) {
        EXPECT_TRUE(verify_checkpoint(found.path).ok());
      }
      // Killed within its first save it has nothing to go on from.
      const Result after = train(run, !listing.complete.empty());
      EXPECT_EQ(after.status, 0) << after.output;
      EXPECT_EQ(hashes(run), hashes("whole"));
      EXPECT_THAT(names_in(saves(run)), Each(MatchesRegex("step-[0-9]+")));
    }
    return errors;
  }

  TemporaryFolder folder_;
  fs::path root_;
  int64_t operations_ = 0;
};

TEST_F(FaultyRun, KilledItGoesOnBitForBit) { expect_no_loss("kill", 128 + SIGKILL); }

TEST_F(FaultyRun, AFailureIsAnErrorThatNamesThePath) {
  // What a run can do without, such as the lock of a folder, may fail without an error.
  EXPECT_GT(expect_no_loss("fail", AnyOf(0, 1)), 0);
}

TEST_F(FaultyRun, HalvedReadsAndWritesAreNoFailure) { expect_no_loss("cut", 0); }

}  // namespace
}  // namespace tessera
