// Evaluations of a checkpoint whose ranks are the stages of a pipeline: the bits of one rank.
#include <gtest/gtest.h>

#include "inference/evaluate_checkpoint.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using LayoutKeys = std::vector<std::string>;

class EvaluationLayouts : public Ranks {
 protected:
  /// Trains a model of four layers for some steps.
  static std::string trained(const std::string& run, LayoutKeys keys) {
    keys.insert(keys.end(), {"model.layers=4", "train.steps=3", "optimizer.warmup_steps=1"});
    train_on(1, config(run, keys));
    return folder(run).string();
  }
  static CheckpointEvaluation evaluation(const std::string& checkpoint, int ranks,
                                         const LayoutKeys& keys, Device device = Device::cpu) {
    return evaluate_checkpoint({.checkpoint = checkpoint,
                                .instances = 12,
                                .threads = 2,
                                .ranks = ranks,
                                .parallel = parse_parallel("", "the command line", keys),
                                .device = device});
  }
  /// Expects the bits of one rank, where ranks share nothing but the layers.
  static void expect_bits_of_one_rank(const std::string& checkpoint,
                                      const std::vector<std::pair<int, LayoutKeys>>& layouts) {
    const CheckpointEvaluation expected = evaluation(checkpoint, 1, {});
    EXPECT_EQ(expected.mean.instances, 12);
    for (const auto& [ranks, keys] : layouts) {
      SCOPED_TRACE(::testing::PrintToString(keys));
      const CheckpointEvaluation found = evaluation(checkpoint, ranks, keys);
      EXPECT_EQ(found.mean.loss, expected.mean.loss);
      EXPECT_EQ(found.mean.targets, expected.mean.targets);
    }
  }
};

const std::string kOnTwoStages = "parallel.pipeline=2";
const std::string kOnFourStages = "parallel.pipeline=4";
const std::string kInTwoChunks = "parallel.virtual_stages=2";
const std::vector<std::pair<int, LayoutKeys>> kInStages{
    {2, {kOnTwoStages}},
    {4, {kOnFourStages}},
    {1, {kInTwoChunks}},
    {2, {kOnTwoStages, kInTwoChunks}},
    {2, {kOnTwoStages, "parallel.schedule=zb-v"}}};

TEST_F(EvaluationLayouts, InStagesHaveTheBitsOfOneRank) {
  const std::string dense = trained("dense", {"train.precision=bf16"});
  std::vector<std::pair<int, LayoutKeys>> layouts = kInStages;
  const fs::path lists = folder_->path() / "lists";
  write_file(lists,
             "tessera pipeline schedule 1\nmicro-batches 1\nchunks 1 0\n"
             "rank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n");
  layouts.insert(layouts.end(),
                 {{2, {kOnTwoStages, fmt::format("parallel.schedule=\"{}\"", lists.string())}},
                  {2, {kOnTwoStages, "parallel.stage_layers=[0, 4]"}},
                  {2, {kOnTwoStages, "parallel.stage_layers=balanced"}},
                  {2, {kOnTwoStages, kInTwoChunks, "parallel.stage_layers=[0, 1, 3, 0]"}}});
  expect_bits_of_one_rank(dense, layouts);
}

/// The table is on two stages, or in two chunks of one.
TEST_F(EvaluationLayouts, OfATiedHeadHaveTheBitsOfOneRank) {
  expect_bits_of_one_rank(trained("tied", {"model.tied_head=true"}), kInStages);
}

TEST_F(EvaluationLayouts, OfAMixtureHaveTheBitsOfOneRank) {
  // Training may drop tokens; an evaluation drops none.
  const std::string mixture = trained(
      "mixture", {"model.feed_forward_size=0", "model.experts=4", "model.experts_per_token=2",
                  "model.expert_size=16", "model.shared_experts=1", "model.capacity_factor=1"});
  expect_bits_of_one_rank(mixture, kInStages);
}

/// Its boundary has the states of the routers, too.
TEST_F(EvaluationLayouts, OfZayaHaveTheBitsOfOneRank) {
  const std::string zaya =
      trained("zaya", {"model.family=zaya", "model.feed_forward_size=0", "model.head_dim=8",
                       "model.experts=4", "model.expert_size=16", "model.router_size=8"});
  expect_bits_of_one_rank(zaya, kInStages);
}

/// Sums over other axes are rounded in their order, with stages as without.
TEST_F(EvaluationLayouts, BesideOtherAxesStagesChangeNoBit) {
  const std::string mixture =
      trained("axes", {"model.feed_forward_size=0", "model.experts=4", "model.experts_per_token=2",
                       "model.expert_size=16", "model.tied_head=true", "train.precision=fp32"});
  const double one = evaluation(mixture, 1, {}).mean.loss;
  const std::vector<LayoutKeys> axes{{},  // data
                                     {"parallel.tensor=2"},
                                     {"parallel.context=2"},
                                     {"parallel.expert=2", "parallel.expert_exchange=all_to_all"},
                                     {"parallel.tensor=2", "parallel.expert=2"}};
  for (const LayoutKeys& axis : axes) {
    SCOPED_TRACE(::testing::PrintToString(axis));
    LayoutKeys stages = axis;
    stages.insert(stages.end(), {kOnTwoStages, kInTwoChunks});
    const double expected = evaluation(mixture, 2, axis).mean.loss;
    EXPECT_EQ(evaluation(mixture, 4, stages).mean.loss, expected);
    EXPECT_NEAR(expected / one, 1, 1e-5);
  }
}

TEST_F(EvaluationLayouts, ADeviceRunsSeveralChunks) {
  const std::string dense = trained("on-device", {"train.precision=fp32"});
  const double one = evaluation(dense, 1, {}, Device::emulated).mean.loss;
  EXPECT_EQ(evaluation(dense, 1, {kInTwoChunks}, Device::emulated).mean.loss, one);
}

/// The layout of the training and the stages that recompute there do not count.
TEST_F(EvaluationLayouts, TakeNothingOfTheTrainingsLayout) {
  const std::string run = "in-stages";
  train_on(4, config(run, {"model.layers=8", "train.steps=1", "optimizer.warmup_steps=1",
                           kOnFourStages, "parallel.schedule=zb-v", "train.recompute=[\"norm\"]",
                           "train.recompute_stages=[3]"}));
  expect_bits_of_one_rank(folder(run).string(), {{2, {kOnTwoStages}}, {1, {kInTwoChunks}}});
}

}  // namespace
}  // namespace tessera
