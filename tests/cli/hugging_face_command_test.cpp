#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hugging_face/weight_folder.h"
#include "cli/program.h"
#include "support/hugging_face_folder.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::HuggingFaceFolder;
using ::testing::Not;
using Result = testing::ProgramResult;

/// Models of transformers through the program itself.
class HuggingFaceCommand : public ::testing::Test {
 protected:
  HuggingFaceCommand() : source_(folder_ / "source", testing::small_olmoe_config(), DType::bf16) {
    source_.write();
    // The tokenizer of the test's data; of the library's it would be another file.
    write_file(folder_ / "source/tokenizer.json", "{\"kind\": \"bytes\"}");
    write_file(folder_ / "source/tokenizer_config.json", "{\"model_max_length\": 64}");
    testing::prepare_small_data(folder_.path());
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  void import() {
    const Result result = run({"checkpoint", "import", path("source"), "--output", path("imported"),
                               "--precision", "fp32", "--quiet"});
    ASSERT_EQ(result.status, 0) << result.output;
  }
  /// A configuration that says nothing of the model.
  std::string config() const {
    return "[run]\ndirectory = \"" + path("run") + "\"\nthreads = 2\n[data]\ndirectory = \"" +
           path("data") +
           "\"\ncontext = 32\n[train]\nsteps = 4\nmicro_batch = 2\nglobal_batch = 2\n"
           "precision = \"fp32\"\n[optimizer]\nwarmup_steps = 1\n[checkpoint]\ninitial = \"" +
           path("imported") + "\"\n";
  }
  Result train(std::vector<std::string> more = {}) {
    write_file(folder_ / "config.toml", config());
    std::vector<std::string> arguments{"train", path("config.toml"), "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  double loss(const char* checkpoint) {
    const Result result =
        run({"eval", "--checkpoint", path(checkpoint), "--data", path("data"), "--json"});
    EXPECT_EQ(result.status, 0) << result.output;
    return result.status == 0 ? nlohmann::json::parse(result.output)["loss"].get<double>() : 0;
  }
  double first_loss() const {
    std::istringstream lines(read_file(folder_ / "run/metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return nlohmann::json::parse(line)["loss"];
  }

  TemporaryFolder folder_;
  HuggingFaceFolder source_;
};

TEST_F(HuggingFaceCommand, EveryCommandHasHelp) {
  for (const char* command : {"import", "export"}) {
    const Result result = run({"checkpoint", command, "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("Usage:"));
  }
}

TEST_F(HuggingFaceCommand, AnImportedModelIsEvaluatedTrainedAndExported) {
  import();
  const Result verified = run({"checkpoint", "verify", path("imported")});
  EXPECT_EQ(verified.status, 0) << verified.output;
  const double before = loss("imported");
  EXPECT_NEAR(before, std::log(300), 0.5) << "small random weights know nothing";
  const Result generated = run({"generate", "--checkpoint", path("imported"), "--prompt", "the",
                                "--tokens", "4", "--ignore-end"});
  EXPECT_EQ(generated.status, 0) << generated.output;

  const Result trained = train();
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("starting with the weights of"));
  EXPECT_NEAR(first_loss(), before, 0.1) << "training did not start with the imported weights";
  EXPECT_LT(loss("run"), before);

  const Result exported =
      run({"checkpoint", "export", path("run"), "--output", path("exported"), "--quiet"});
  ASSERT_EQ(exported.status, 0) << exported.output;
  EXPECT_THAT(exported.output, HasSubstr("OlmoeForCausalLM"));
  EXPECT_THAT(exported.output, HasSubstr("float32"));
  EXPECT_THAT(exported.output, HasSubstr("tokenizer_config.json"));
  const auto json = nlohmann::json::parse(read_file(folder_ / "exported/config.json"));
  EXPECT_EQ(json["max_position_embeddings"], 64);
  EXPECT_EQ(json["eos_token_id"], 256);

  // The export is a source again, with the run's weights.
  const Result again =
      run({"checkpoint", "import", path("exported"), "--output", path("again"), "--quiet"});
  ASSERT_EQ(again.status, 0) << again.output;
  const CheckpointReader first(folder_ / "run/checkpoints/step-00000004");
  const CheckpointReader second(folder_ / "again/step-00000000");
  int compared = 0;
  for (const CheckpointTensor& tensor : second.manifest().tensors) {
    EXPECT_EQ(first.find("parameters", tensor.name)->pieces[0].hashes, tensor.pieces[0].hashes)
        << tensor.name;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST_F(HuggingFaceCommand, ARunResumesFromItsOwnCheckpointToTheSameBits) {
  import();
  ASSERT_EQ(train().status, 0);
  fs::rename(folder_ / "run", folder_ / "whole");
  ASSERT_EQ(train({"--set", "train.stop_after=2"}).status, 0);
  const Result resumed = train({"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, Not(HasSubstr("starting with the weights")));
  for (const char* file : {"parameters.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(folder_ / "run/checkpoints/step-00000004" / file),
              read_file(folder_ / "whole/checkpoints/step-00000004" / file));
  }
}

TEST_F(HuggingFaceCommand, ImportAndExportGiveBackTheSameBytes) {
  import();
  ASSERT_EQ(
      run({"checkpoint", "export", path("imported"), "--output", path("back"), "--quiet"}).status,
      0);
  const hugging_face::WeightFolder before(folder_ / "source");
  const hugging_face::WeightFolder after(folder_ / "back");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, tensor] : before.tensors()) {
    const hugging_face::FolderTensor& other = after.tensors().at(name);
    EXPECT_TRUE(tensor.file->read(*tensor.entry) == other.file->read(*other.entry)) << name;
  }
  // A name without a folder is one of the folder that the command is given in.
  testing::Subprocess named(
      {"/bin/sh", "-c",
       "cd '" + folder_.path().string() +
           "' && '" TESSERA_PROGRAM "' checkpoint export imported --output named --quiet"},
      folder_ / "named.txt");
  EXPECT_EQ(named.wait(), 0) << named.output();
  EXPECT_TRUE(fs::exists(folder_ / "named/config.json"));
  const Result sharded = run({"checkpoint", "export", path("imported"), "--output", path("sharded"),
                              "--shard-size", "2KB", "--fused-experts"});
  EXPECT_EQ(sharded.status, 0) << sharded.output;
  EXPECT_TRUE(fs::exists(folder_ / "sharded/model.safetensors.index.json"));
  const Result whole = run({"checkpoint", "export", path("imported"), "--output", path("whole"),
                            "--shard-size", "1.5GB", "--quiet"});
  EXPECT_EQ(whole.status, 0) << whole.output;
  for (const char* size : {"5XB", "0", "-1", "999", "2000PB"}) {
    const Result refused = run(
        {"checkpoint", "export", path("imported"), "--output", path("no"), "--shard-size", size});
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.output, HasSubstr(std::string("--shard-size: found '") + size + "'"));
  }
}

TEST_F(HuggingFaceCommand, AnotherModelThanTheWeightsIsNamedKeyByKey) {
  import();
  const Result result = train({"--set", "model.layers=3", "--set", "model.expert_size=16"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output,
              HasSubstr("model.layers is 2 for the weights, 3 in the configuration"));
  EXPECT_THAT(result.output, HasSubstr("model.expert_size is 8 for the weights, 16"));
  // Keys of training and of the context may change.
  const Result allowed = train({"--set", "model.balance_coefficient=0.5", "--set",
                                "model.rope_theta=50000", "--set", "train.stop_after=1"});
  EXPECT_EQ(allowed.status, 0) << allowed.output;
  EXPECT_THAT(allowed.output, HasSubstr("model.rope_theta is 10000.0 for the initial weights"));
}

TEST_F(HuggingFaceCommand, ErrorsSayWhatToDo) {
  const auto expect_error = [&](std::vector<std::string> arguments, const char* message) {
    const Result result = run(std::move(arguments));
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr(message));
  };
  expect_error({"checkpoint", "import", path("nothing"), "--output", path("a")}, "config.json");
  expect_error({"checkpoint", "import", path("source"), "--output", path("a"), "--precision", "x"},
               "--precision");
  expect_error({"checkpoint", "export", path("nothing"), "--output", path("a")}, "nothing");
  EXPECT_FALSE(fs::exists(path("a")));
  const Result result = train();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("checkpoint.initial = \""));
  // Fewer tokens than the data has.
  HuggingFaceFolder narrow(
      folder_ / "narrow",
      [] {
        auto json = testing::small_olmoe_config();
        json["vocab_size"] = 100;
        json["eos_token_id"] = 99;
        return json;
      }(),
      DType::bf16);
  narrow.write();
  ASSERT_EQ(run({"checkpoint", "import", path("narrow"), "--output", path("imported")}).status, 0);
  EXPECT_THAT(train().output, HasSubstr("model.vocabulary_size is 100, but the tokenizer"));
}

}  // namespace
}  // namespace tessera
