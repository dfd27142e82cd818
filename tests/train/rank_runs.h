#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_reader.h"
#include "config/load_config.h"
#include "metrics/metrics.h"
#include "support/prepared_data.h"
#include "support/two_threads.h"
#include "train/trainer.h"

namespace tessera {

/// Runs of a small dense model, or of a mixture, on several ranks. The runs of a suite share a
/// folder.
class Ranks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    testing::prepare_small_data(folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const std::string& run, const std::vector<std::string>& more = {}) {
    const std::string text =
        "[run]\ndirectory = \"" + (folder_->path() / run).string() +
        "\"\nthreads = " + std::to_string(testing::two_threads()) +
        "\ntensorboard = false\nhardware = \"" + (folder_->path() / "hardware.json").string() +
        "\"\n"
        "[model]\nfamily = \"llama\"\nlayers = 2\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
        "feed_forward_size = 48\nvocabulary_size = 260\n"
        "[data]\ndirectory = \"" +
        (folder_->path() / "data").string() +
        "\"\ncontext = 32\n"
        "[train]\nsteps = 20\nmicro_batch = 2\nglobal_batch = 8\nprecision = \"fp64\"\n"
        "[optimizer]\nlearning_rate = 1e-2\nminimum_learning_rate = 1e-3\nwarmup_steps = 4\n"
        "[checkpoint]\nevery = 10\n";
    return parse_config(text, "test", more);
  }
  /// The same with routed and shared experts.
  static RunConfig mixture(const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), {"model.experts=8", "model.experts_per_token=2", "model.expert_size=16",
                             "model.feed_forward_size=0", "model.shared_experts=1"});
    return config(run, more);
  }
  static fs::path folder(const std::string& run) { return folder_->path() / run; }
  static fs::path checkpoint(const std::string& run, int64_t step) {
    return folder(run) / "checkpoints" / fmt::format("step-{:08}", step);
  }
  static TrainReport train_on(int ranks, const RunConfig& config, TrainOptions options = {}) {
    options.ranks = ranks;
    options.progress = false;
    return train(config, options, Logger::silent());
  }
  static std::vector<StepMetrics> metrics(const std::string& run) {
    return read_metrics(folder(run) / "metrics.jsonl");
  }
  /// The bytes of all tensors of a checkpoint, each put together from its pieces.
  static std::string tensors(const std::string& run, int64_t step) {
    const CheckpointReader reader(checkpoint(run, step));
    std::string bytes;
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      reader.check(tensor);
      bytes += tensor.label();
      reader.read_chunks(tensor, 0, tensor.bytes(), [&](std::span<std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
      });
    }
    return bytes;
  }

  inline static TemporaryFolder* folder_ = nullptr;
};

/// The steps of two runs of different layouts have the same losses, gradients' norms and counts but
/// for rounding.
inline void expect_same_training(const std::vector<StepMetrics>& a,
                                 const std::vector<StepMetrics>& b, double tolerance,
                                 double of_norm) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", a[i].step));
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_EQ(a[i].lr, b[i].lr);
    EXPECT_EQ(a[i].flops, b[i].flops);
    EXPECT_NEAR(a[i].loss / b[i].loss, 1, tolerance);
    EXPECT_NEAR(a[i].grad_norm / b[i].grad_norm, 1, of_norm);
    ASSERT_EQ(a[i].held_out_loss.has_value(), b[i].held_out_loss.has_value());
    if (!a[i].held_out_loss) continue;
    EXPECT_NEAR(*a[i].held_out_loss / *b[i].held_out_loss, 1, tolerance);
  }
}

inline void expect_same_training(const std::vector<StepMetrics>& a,
                                 const std::vector<StepMetrics>& b, double tolerance) {
  expect_same_training(a, b, tolerance, 10 * tolerance);
}

/// Flips a bit in the middle of a file.
inline void flip(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(path, bytes);
}

}  // namespace tessera
