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

/// Checkpoints of format version 1, as the program wrote them in November 2026. They stay as they
/// are: whatever is written later, these are read. They were made of the files beside them by
///
///   tessera prepare --input text.txt --output data --tokenizer bytes --context 32 --held-out 0.05
///   tessera train config.toml                     # its checkpoint is trained/
///   tessera checkpoint import source --output imported
///
/// where `source` held a LlamaForCausalLM of one layer with random bf16 weights. tensors.json has
/// the type, shape and XXH3 of every tensor, as `tessera checkpoint inspect --json` gave them.
fs::path golden() { return fs::path(TESSERA_SOURCE) / "tests/fixtures/golden/checkpoint-v1"; }

struct Golden {
  std::string name;
  fs::path path;
};

std::vector<Golden> checkpoints() {
  return {{"trained", golden() / "trained/step-00000002"},
          {"imported", golden() / "imported/step-00000000"}};
}

/// What tensors.json says of a tensor, of one that was loaded.
std::string description(const CheckpointTensor& tensor, std::span<const std::byte> bytes) {
  std::vector<std::string> dims;
  for (const int64_t dim : tensor.shape.dims()) dims.push_back(std::to_string(dim));
  return fmt::format("{} {} {}", dtype_name(tensor.dtype), join(dims, "x"), hash_text(hash(bytes)));
}

TEST(GoldenCheckpoint, IsUndamaged) {
  for (const Golden& checkpoint : checkpoints()) {
    const VerifyReport report = verify_checkpoint(checkpoint.path);
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_THAT(report.warnings, IsEmpty()) << report.text();
  }
}

TEST(GoldenCheckpoint, EveryTensorHasItsBits) {
  const auto recorded = nlohmann::json::parse(read_file(golden() / "tensors.json"));
  for (const Golden& checkpoint : checkpoints()) {
    const CheckpointReader reader(checkpoint.path);
    const nlohmann::json& expected = recorded.at(checkpoint.name);
    ASSERT_EQ(reader.manifest().tensors.size(), expected.size());
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      std::vector<std::byte> memory(static_cast<size_t>(tensor.bytes()));
      reader.load(
          {tensor.group, tensor.name, Tensor::wrap(memory.data(), tensor.shape, tensor.dtype)});
      EXPECT_EQ(description(tensor, memory), expected.at(tensor.label()).get<std::string>())
          << checkpoint.name << ": " << tensor.label();
    }
  }
}

TEST(GoldenCheckpoint, TheStateIsRead) {
  const CheckpointReader trained(golden() / "trained/step-00000002");
  EXPECT_EQ(trained.state().step, 2);
  EXPECT_EQ(trained.state().integer("tokens"), 128);
  EXPECT_EQ(trained.state().integer("random.seed"), 7);
  EXPECT_EQ(trained.state().text("data.0.name"), "data");
  EXPECT_EQ(trained.state().number("data.0.weight"), 1.0);
  const CheckpointReader imported(golden() / "imported/step-00000000");
  EXPECT_EQ(imported.state().text("hugging_face.architecture"), "LlamaForCausalLM");
}

TEST(GoldenCheckpoint, TheRunGoesOn) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "run");
  fs::copy(golden() / "trained", folder / "run/checkpoints", fs::copy_options::recursive);
  const auto run = [&](std::vector<std::string> arguments) {
    const auto result = run_program(folder, std::move(arguments));
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  };
  const std::string data = (folder / "data").string();
  run({"prepare", "--input", (golden() / "text.txt").string(), "--output", data, "--tokenizer",
       "bytes", "--context", "32", "--held-out", "0.05"});
  run({"train", (golden() / "config.toml").string(), "--resume", "--quiet", "--set",
       "train.stop_after=4", "--set", "run.directory=" + (folder / "run").string(), "--set",
       "data.directory=" + data});
  EXPECT_THAT(run({"checkpoint", "inspect", (folder / "run").string()}),
              HasSubstr("step-00000004"));
  // The losses and gradient norms of the program that wrote the checkpoint, which went on too.
  const std::vector<StepMetrics> metrics = read_metrics(folder / "run/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_NEAR(metrics[0].loss, 5.393717412, 1e-5);
  EXPECT_NEAR(metrics[0].grad_norm, 0.859785184, 1e-5);
  EXPECT_NEAR(metrics[1].loss, 5.336585929, 1e-5);
  EXPECT_NEAR(metrics[1].grad_norm, 0.837967629, 1e-5);
}

TEST(GoldenCheckpoint, TheImportedModelIsUsed) {
  const TemporaryFolder folder;
  const auto result =
      run_program(folder, {"generate", "--checkpoint", checkpoints()[1].path.string(), "--prompt",
                           "the", "--tokens", "6", "--ignore-end", "--temperature", "0", "--json"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\"tokens\":[234,191,166,191,166,191]"));
}

}  // namespace
}  // namespace tessera
