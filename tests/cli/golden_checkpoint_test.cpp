#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/verify_checkpoint.h"
#include "cli/program.h"
#include "metrics/metrics.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_program;

/// Checkpoints of each format version, as the program wrote them in November 2026. They stay as
/// they are: whatever is written later, these are read. Those of version 1 were made of the files
/// beside them by
///
///   tessera prepare --input text.txt --output data --tokenizer bytes --context 32 --held-out 0.05
///   tessera train config.toml                     # its checkpoint is trained/
///   tessera checkpoint import source --output imported
///
/// where `source` held a LlamaForCausalLM of one layer with random bf16 weights. tensors.json has
/// the type, shape and XXH3 of every tensor, as `tessera checkpoint inspect --json` gave them. That
/// of version 2 is of the same run with
///
///   tessera train config.toml --ranks 4 --set parallel.tensor=2 --set parallel.expert=2
///     --set train.micro_batch=1
///
/// and its tensors.json of hashes.py, which puts the pieces together by itself.
fs::path golden(int version) {
  return fs::path(TESSERA_SOURCE) / fmt::format("tests/fixtures/golden/checkpoint-v{}", version);
}

struct Golden {
  std::string name;
  int version;
  std::string folder = "step-00000002";

  fs::path path() const { return golden(version) / name / folder; }
};

const std::vector<Golden> kCheckpoints{
    {"trained", 1}, {"imported", 1, "step-00000000"}, {"trained", 2}};

/// What tensors.json says of a tensor, of one that was loaded.
std::string description(const CheckpointTensor& tensor, std::span<const std::byte> bytes) {
  std::vector<std::string> dims;
  for (const int64_t dim : tensor.shape.dims()) dims.push_back(std::to_string(dim));
  return fmt::format("{} {} {}", dtype_name(tensor.dtype), join(dims, "x"), hash_text(hash(bytes)));
}

TEST(GoldenCheckpoint, IsUndamaged) {
  for (const Golden& checkpoint : kCheckpoints) {
    const VerifyReport report = verify_checkpoint(checkpoint.path());
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_THAT(report.warnings, IsEmpty()) << report.text();
  }
}

TEST(GoldenCheckpoint, EveryTensorHasItsBits) {
  for (const Golden& checkpoint : kCheckpoints) {
    const auto recorded =
        nlohmann::json::parse(read_file(golden(checkpoint.version) / "tensors.json"));
    const CheckpointReader reader(checkpoint.path());
    const nlohmann::json& expected = recorded.at(checkpoint.name);
    ASSERT_EQ(reader.manifest().tensors.size(), expected.size());
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      std::vector<std::byte> memory(static_cast<size_t>(tensor.bytes()));
      reader.load(
          {tensor.group, tensor.name, Tensor::wrap(memory.data(), tensor.shape, tensor.dtype)});
      EXPECT_EQ(description(tensor, memory), expected.at(tensor.label()).get<std::string>())
          << checkpoint.path() << ": " << tensor.label();
    }
  }
}

TEST(GoldenCheckpoint, TheStateIsRead) {
  for (const int version : {1, 2}) {
    const CheckpointReader trained(Golden{"trained", version}.path());
    EXPECT_EQ(trained.state().step, 2);
    EXPECT_EQ(trained.state().integer("tokens"), 128);
    EXPECT_EQ(trained.state().integer("random.seed"), 7);
    EXPECT_EQ(trained.state().text("data.0.name"), "data");
    EXPECT_EQ(trained.state().number("data.0.weight"), 1.0);
  }
  const CheckpointReader imported(kCheckpoints[1].path());
  EXPECT_EQ(imported.state().text("hugging_face.architecture"), "LlamaForCausalLM");
}

TEST(GoldenCheckpoint, TheRunGoesOn) {
  const TemporaryFolder folder;
  const auto run = [&](std::vector<std::string> arguments) {
    const auto result = run_program(folder, std::move(arguments));
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  };
  const std::string data = (folder / "data").string();
  run({"prepare", "--input", (golden(1) / "text.txt").string(), "--output", data, "--tokenizer",
       "bytes", "--context", "32", "--held-out", "0.05"});
  for (const int version : {1, 2}) {
    SCOPED_TRACE(version);
    const fs::path own = folder / fmt::format("run{}", version);
    fs::create_directory(own);
    fs::copy(golden(version) / "trained", own / "checkpoints", fs::copy_options::recursive);
    run({"train", (golden(1) / "config.toml").string(), "--resume", "--quiet", "--set",
         "train.stop_after=4", "--set", "run.directory=" + own.string(), "--set",
         "data.directory=" + data});
    EXPECT_THAT(run({"checkpoint", "inspect", own.string()}), HasSubstr("step-00000004"));
    // The losses and gradient norms of the program that wrote version 1, which went on too.
    const std::vector<StepMetrics> metrics = read_metrics(own / "metrics.jsonl");
    ASSERT_EQ(metrics.size(), 2U);
    EXPECT_NEAR(metrics[0].loss, 5.393717412, 1e-5);
    EXPECT_NEAR(metrics[0].grad_norm, 0.859785184, 1e-5);
    EXPECT_NEAR(metrics[1].loss, 5.336585929, 1e-5);
    EXPECT_NEAR(metrics[1].grad_norm, 0.837967629, 1e-5);
  }
}

TEST(GoldenCheckpoint, TheImportedModelIsUsed) {
  const TemporaryFolder folder;
  const auto result =
      run_program(folder, {"generate", "--checkpoint", kCheckpoints[1].path().string(), "--prompt",
                           "the", "--tokens", "6", "--ignore-end", "--temperature", "0", "--json"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\"tokens\":[234,191,166,191,166,191]"));
}

}  // namespace
}  // namespace tessera
