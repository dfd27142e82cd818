#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "cli/program.h"
#include "fault/preload.h"
#include "support/names_in.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::names_in;
using Result = testing::ProgramResult;

/// A run of four steps with a checkpoint of each, and what commands make of it when it is damaged.
class CheckpointCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = std::make_unique<TemporaryFolder>();
    testing::prepare_small_data(trained_->path(), 32, 60);
    write_file(*trained_ / "config.toml", testing::small_config(trained_->path()));
    const Result result = testing::run_program(*trained_, arguments(*trained_));
    ASSERT_EQ(result.status, 0) << result.output;
  }
  static void TearDownTestSuite() { trained_.reset(); }

  CheckpointCommand() { fs::copy(*trained_ / "run", run_, fs::copy_options::recursive); }

  static std::vector<std::string> arguments(const TemporaryFolder& folder) {
    return {"train",
            (folder / "config.toml").string(),
            "--quiet",
            "--set",
            "train.steps=4",
            "--set",
            "optimizer.warmup_steps=1",
            "--set",
            "checkpoint.every=1",
            "--set",
            "checkpoint.keep=9",
            "--set",
            "train.precision=\"fp32\""};
  }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  Result resume() const {
    std::vector<std::string> all = arguments(*trained_);
    all.insert(all.end(), {"--resume", "--set", "run.directory=" + run_.string()});
    return run(all);
  }
  fs::path step(int64_t step) const { return checkpoint_path(run_ / "checkpoints", step); }
  static void flip(const fs::path& file) {
    std::string content = read_file(file);
    content[content.size() - 3] ^= 1;
    write_file(file, content);
  }

  static std::unique_ptr<TemporaryFolder> trained_;
  TemporaryFolder folder_;
  fs::path run_ = folder_ / "run";
};

std::unique_ptr<TemporaryFolder> CheckpointCommand::trained_;

TEST_F(CheckpointCommand, VerifyOfARunFailsWhenItsNewestIsBroken) {
  const auto verify = [&] { return run({"checkpoint", "verify", run_.string()}); };
  Result result = verify();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step-00000004 is complete and undamaged: step 4"));
  fs::remove(step(4) / "optimizer.safetensors");
  result = verify();
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step-00000004 is damaged"));
  EXPECT_THAT(result.output, HasSubstr("complete one beside it is " + step(3).string()));
}

TEST_F(CheckpointCommand, VerifyOfARunNamesAnOlderOneThatIsBroken) {
  fs::remove(step(2) / "manifest.json");
  const Result result = run({"checkpoint", "verify", run_.string()});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("step-00000004 is complete and undamaged"),
                                   HasSubstr("step-00000002 is broken")));
}

TEST_F(CheckpointCommand, AnOlderCheckpointUnderANewerNameIsAProblem) {
  fs::remove_all(step(4));
  fs::copy(step(3), step(4));
  for (const fs::path& path : {step(4), run_}) {
    const Result result = run({"checkpoint", "verify", path.string()});
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("holds the checkpoint of step 3"));
  }
  const Result used = run({"generate", "--checkpoint", step(4).string(), "--prompt", "a"});
  EXPECT_EQ(used.status, 1);
  EXPECT_THAT(used.output, HasSubstr("holds the checkpoint of step 3"));
}

TEST_F(CheckpointCommand, EveryCommandSaysThatItUsesAnOlderOneAndWhich) {
  fs::remove(step(4) / "optimizer.safetensors");
  const std::string data = (*trained_ / "data").string();
  const std::vector<std::vector<std::string>> commands{
      {"checkpoint", "inspect", run_.string()},
      {"generate", "--checkpoint", run_.string(), "--prompt", "the", "--tokens", "2"},
      {"eval", "--checkpoint", run_.string(), "--data", data},
      {"checkpoint", "export", run_.string(), "--output", (folder_ / "out").string(), "--quiet"},
      {"train", (*trained_ / "config.toml").string(), "--quiet", "--set", "train.steps=1", "--set",
       "optimizer.warmup_steps=0", "--set", "train.precision=\"fp32\"", "--set",
       "checkpoint.initial=" + run_.string(), "--set",
       "run.directory=" + (folder_ / "next").string()}};
  for (const auto& command : commands) {
    const Result result = run(command);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(step(4).string() + " is newer but broken: "));
    EXPECT_THAT(result.output, HasSubstr("optimizer.safetensors is missing"));
    EXPECT_THAT(result.output, HasSubstr(step(3).string()));
    EXPECT_THAT(result.output, ::testing::ContainsRegex("step( +|=)3"));
  }
}

TEST_F(CheckpointCommand, GenerateNamesItsCheckpointInJsonToo) {
  const Result result = run(
      {"generate", "--checkpoint", run_.string(), "--prompt", "the", "--tokens", "2", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json.at("checkpoint"), step(4).string());
  EXPECT_EQ(json.at("step"), 4);
}

TEST_F(CheckpointCommand, DamageFoundWhileReadingIsAnErrorThatNamesAnOlderOne) {
  flip(step(4) / "parameters.safetensors");
  const std::vector<std::vector<std::string>> commands{
      {"generate", "--checkpoint", run_.string(), "--prompt", "the"},
      {"eval", "--checkpoint", run_.string(), "--data", (*trained_ / "data").string()},
      {"checkpoint", "export", run_.string(), "--output", (folder_ / "out").string(), "--quiet"}};
  for (const auto& command : commands) {
    const Result result = run(command);
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("' is damaged: the hash of its bytes"));
    EXPECT_THAT(result.output, HasSubstr("newest complete one before it is " + step(3).string()));
  }
  // The tokenizer is a part of the checkpoint as well.
  flip(step(3) / "tokenizer.json");
  const Result result =
      run({"generate", "--checkpoint", step(3).string(), "--prompt", "the", "--tokens", "1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("tokenizer.json is damaged"));
}

TEST_F(CheckpointCommand, AResumeWithNothingToDoRemovesWhatAKilledSaveLeft) {
  const fs::path directory = run_ / "checkpoints";
  fs::copy(step(2), checkpoint_path(directory, 1, FolderState::deleted));
  fs::create_directory(checkpoint_path(directory, 5, FolderState::partial));
  EXPECT_EQ(run({"checkpoint", "verify", run_.string()}).status, 0);
  EXPECT_THAT(run({"checkpoint", "inspect", run_.string()}).output, HasSubstr("step-00000004"));
  const Result result = resume();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("nothing to do"));
  EXPECT_THAT(names_in(directory), ::testing::ElementsAre("step-00000001", "step-00000002",
                                                          "step-00000003", "step-00000004"));
}

TEST_F(CheckpointCommand, AResumeTakesAnOlderOneWhereTheNewestCannotBeRead) {
  const fs::path file = fs::canonical(step(4)) / "optimizer.safetensors";
  const testing::PreloadedFault fault("broken:4:" + file.string());
  const Result result = resume();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("step-00000004 is damaged and passed over"));
  EXPECT_THAT(result.output, HasSubstr("Input/output error"));
  EXPECT_THAT(result.output, HasSubstr("going on after step 3"));
}

}  // namespace
}  // namespace tessera
