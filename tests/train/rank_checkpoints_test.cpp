// Checkpoints of several ranks, for any layout.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/evaluate_checkpoint.h"
#include "support/error_of.h"
#include "support/names_in.h"
#include "train/load_and_save.h"
#include "train/rank_runs.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The bytes that this process has read from files.
int64_t bytes_read() {
  std::ifstream counts("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  counts >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

/// Data ranks hold the same parameters and moments: one of them reads each, and broadcasts it.
TEST_F(Ranks, ReadOnceWhatSeveralOfThemHold) {
  const std::vector<std::string> layout{"model.feed_forward_size=2048", "train.stop_after=10"};
  train_on(1, config("whole", layout));
  int64_t of_tensors = 0;
  for (const std::string& file : testing::names_in(checkpoint("whole", 10))) {
    if (file.ends_with(".safetensors"))
      of_tensors += std::ssize(read_file(checkpoint("whole", 10) / file));
  }
  const auto read_by = [&](int ranks) {
    const int64_t before = bytes_read();
    load_and_save(config("whole", layout), folder(fmt::format("by-{}", ranks)).string(), ranks);
    return bytes_read() - before;
  };
  const int64_t by_one = read_by(1);
  const int64_t by_four = read_by(4);
  EXPECT_GE(by_one, of_tensors);
  EXPECT_LT(by_four, by_one + of_tensors / 2) << "of " << of_tensors << " bytes of tensors";
  EXPECT_TRUE(tensors("by-4", 10) == tensors("whole", 10));
}

TEST_F(Ranks, GoOnBitForBit) {
  const std::vector<std::string> layout{"parallel.tensor=2"};
  train_on(4, config("straight", layout));
  train_on(4, config("stopped", {"parallel.tensor=2", "train.stop_after=7"}));
  train_on(4, config("stopped", layout), {.resume = true});
  EXPECT_TRUE(tensors("stopped", 20) == tensors("straight", 20));
}

TEST_F(Ranks, SaveTensorsThatAnyLayoutLoads) {
  // Neither the vocabulary nor the inner channels divide over tensor ranks.
  const auto layout = [](int64_t tensor, int64_t context) {
    return std::vector{
        fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.context={}", context),
        std::string("model.vocabulary_size=261"), std::string("model.feed_forward_size=51"),
        std::string("train.stop_after=10")};
  };
  train_on(2, config("whole", layout(2, 1)));
  const CheckpointReader reader(checkpoint("whole", 10));
  const CheckpointTensor* down = reader.find("parameters", "layers.0.feed_forward.down");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape, (Shape{32, 51}));
  const std::string saved = tensors("whole", 10);
  int number = 0;
  for (const auto& [ranks, keys] : std::vector{std::pair(1, layout(1, 1)),
                                               {2, layout(1, 1)},
                                               {2, layout(2, 1)},
                                               {4, layout(4, 1)},
                                               {4, layout(2, 2)}}) {
    const std::string run = fmt::format("saved-again-{}", ++number);
    load_and_save(config("whole", keys), folder(run).string(), ranks);
    EXPECT_TRUE(tensors(run, 10) == saved) << fmt::format("{} ranks, {}", ranks, keys[0]);
  }
}

/// Experts lie in another view of the mesh than all else, in units of their own.
std::vector<std::string> experts_on(int64_t experts, int64_t tensor, const std::string& exchange,
                                    std::vector<std::string> more = {}) {
  more.insert(more.end(), {fmt::format("parallel.expert={}", experts),
                           fmt::format("parallel.tensor={}", tensor),
                           fmt::format("parallel.expert_exchange=\"{}\"", exchange)});
  return more;
}

TEST_F(Ranks, SaveExpertsThatAnyLayoutLoads) {
  const auto layout = [](int64_t experts, int64_t tensor, const std::string& exchange) {
    return experts_on(experts, tensor, exchange, {"train.stop_after=10"});
  };
  train_on(4, mixture("experts", layout(4, 2, "all_to_all")));
  const CheckpointReader reader(checkpoint("experts", 10));
  const CheckpointTensor* gate = reader.find("parameters", "layers.1.experts.gate");
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(gate->shape, (Shape{8, 16, 32}));
  const std::string saved = tensors("experts", 10);
  int number = 0;
  for (const auto& [ranks, keys] : std::vector{std::pair(1, layout(1, 1, "all_gather")),
                                               {2, layout(2, 1, "all_to_all")},
                                               {4, layout(4, 1, "all_gather")},
                                               {4, layout(2, 2, "all_to_all")}}) {
    const std::string run = fmt::format("experts-again-{}", ++number);
    load_and_save(mixture("experts", keys), folder(run).string(), ranks);
    EXPECT_TRUE(tensors(run, 10) == saved) << fmt::format("{} ranks, {}", ranks, keys[1]);
  }
}

TEST_F(Ranks, OfExpertsGoOnBitForBitAndInAnotherLayout) {
  const auto stop = [](int64_t step) { return fmt::format("train.stop_after={}", step); };
  const std::vector<std::string> here = experts_on(4, 1, "all_to_all");
  train_on(4, mixture("experts-straight", here));
  train_on(4, mixture("experts-stopped", experts_on(4, 1, "all_to_all", {stop(7)})));
  train_on(4, mixture("experts-stopped", here), {.resume = true});
  EXPECT_TRUE(tensors("experts-stopped", 20) == tensors("experts-straight", 20));
  train_on(1, mixture("experts-moved", {stop(7)}));
  train_on(4, mixture("experts-moved", experts_on(2, 2, "all_gather", {stop(13)})),
           {.resume = true});
  train_on(2, mixture("experts-moved", experts_on(2, 1, "all_to_all")), {.resume = true});
  expect_same_training(metrics("experts-moved"), metrics("experts-straight"), 1e-9);
}

TEST_F(Ranks, OfAnotherLayoutGoOnWithARun) {
  train_on(1, config("unbroken"));
  train_on(2, config("moved", {"parallel.tensor=2", "train.stop_after=7"}));
  train_on(4, config("moved", {"train.stop_after=13"}), {.resume = true});
  train_on(1, config("moved"), {.resume = true});
  expect_same_training(metrics("moved"), metrics("unbroken"), 1e-10);
}

TEST_F(Ranks, TakeInitialWeightsFromACheckpoint) {
  train_on(1, config("given", {"train.stop_after=10"}));
  const std::string initial = "checkpoint.initial=\"" + folder("given").string() + "\"";
  train_on(1, config("begun-1", {initial, "train.stop_after=3"}));
  train_on(2, config("begun-2", {initial, "train.stop_after=3", "parallel.tensor=2"}));
  expect_same_training(metrics("begun-2"), metrics("begun-1"), 1e-10);
}

TEST_F(Ranks, EvaluateACheckpointAsOneDoes) {
  train_on(1, config("evaluated", {"train.stop_after=10"}));
  CheckpointEvaluationOptions options{.checkpoint = folder("evaluated").string(), .threads = 2};
  const CheckpointEvaluation one = evaluate_checkpoint(options);
  for (const int ranks : {2, 4}) {
    options.ranks = ranks;
    const CheckpointEvaluation several = evaluate_checkpoint(options);
    EXPECT_NEAR(several.mean.loss / one.mean.loss, 1, 1e-12);
    EXPECT_EQ(several.mean.targets, one.mean.targets);
    EXPECT_EQ(several.mean.instances, one.mean.instances);
  }
  options.batch = 6;
  EXPECT_THAT(error_of([&] { evaluate_checkpoint(options); }),
              AllOf(HasSubstr("--ranks (4)"), HasSubstr("--batch (6)")));
}

TEST_F(Ranks, PassOverADamagedCheckpoint) {
  train_on(2, config("passes", {"checkpoint.keep=2"}));
  flip(checkpoint("passes", 20) / "parameters-rank-00001.safetensors");
  EXPECT_EQ(train_on(4, config("passes"), {.resume = true}).step, 20);
  EXPECT_EQ(metrics("passes").size(), 20U);
  train_on(1, config("unharmed"));
  expect_same_training(metrics("passes"), metrics("unharmed"), 1e-10);
}

}  // namespace
}  // namespace tessera
