#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/device_rank_runs.h"

namespace tessera {
namespace {

/// Runs with pieces of weights and gradients on 4 ranks, 2 nodes of 2, or on 8, with pairs.
class DeviceShards : public DeviceRanks {
 protected:
  static std::vector<std::string> with(std::vector<std::string> keys,
                                       const std::vector<std::string>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  }
  static inline const std::vector<std::string> kSmall{
      "train.micro_batch=1",     "parallel.levels=[2]",      "model.layers=1",
      "train.steps=2",           "optimizer.warmup_steps=1", "train.global_batch=8",
      "checkpoint.every=1",      "run.check_replicas=1",     "train.evaluate_every=2",
      "train.evaluate_batches=1"};
  static inline const std::vector<std::string> kZero3{
      "shard.weights=\"all\"", "shard.gradients=\"all\"", "shard.optimizer=\"all\""};
  static inline const std::vector<std::string> kIntegers{
      "shard.weights_wire=\"int8\"", "shard.gradients_wire=\"int4\"", "shard.block=64"};
  static inline const std::vector<std::string> kZeroPlusPlus =
      with(with(kZero3, kIntegers), {"shard.secondary=\"node\""});
  static inline const std::vector<std::string> kZeroTopo =
      with(kIntegers,
           {"shard.weights=\"pair\"", "shard.gradients=\"node\"", "shard.optimizer=\"all\"",
            "shard.secondary=\"node\"", "shard.secondary_wire=\"int8\"", "parallel.levels=[2, 2]"});
};

/// A step has one micro-batch, so the sums of a frame are those of a step.
TEST_F(DeviceShards, HaveTheBitsOfWholeWeightsIfNothingIsRounded) {
  const std::vector<std::string> keys = with(on_device({}), with(kSmall, {"train.global_batch=4"}));
  train_on(4, config("whole", with(keys, {"shard.optimizer=\"all\""})));
  train_on(4, config("zero 3", with(keys, kZero3)));
  train_on(4, config("copies", with(with(keys, kZero3), {"shard.secondary=\"node\""})));
  for (const char* run : {"zero 3", "copies"}) {
    SCOPED_TRACE(run);
    expect_same_curve(run, "whole", 0);
    EXPECT_TRUE(tensors(run, 2) == tensors("whole", 2));
  }
}

TEST_F(DeviceShards, FollowTheCurveOfTheProcessor) {
  struct Scheme {
    std::string name;
    int ranks;
    std::vector<std::string> keys;
  };
  const std::vector<std::string> experts{"parallel.expert=2",
                                         "parallel.expert_exchange=\"all_gather\""};
  for (const auto& [name, ranks, keys] : std::vector<Scheme>{
           {"zero 3", 4, kZero3},
           {"zero ++", 4, kZeroPlusPlus},
           {"feedback", 4, with(kZeroPlusPlus, {"shard.error_feedback=0.8"})},
           {"zero topo", 8, kZeroTopo},
           {"muon", 4, with(kZeroPlusPlus, {"optimizer.name=\"muon\""})},
           {"tensor", 8, with(kZeroPlusPlus, {"parallel.tensor=2", "parallel.levels=[4]"})},
           {"experts", 4, with(kZeroPlusPlus, experts)},
       }) {
    SCOPED_TRACE(name);
    const std::vector<std::string> settings = with(kSmall, keys);
    const auto run = [&](const std::string& folder, const std::vector<std::string>& more) {
      const std::vector<std::string> all = with(more, settings);
      train_on(ranks, name == "experts" ? mixture(folder, all) : config(folder, all));
    };
    const std::string device = name + " on devices", processor = name + " on the processor";
    run(device, on_device({}));
    run(processor, {"train.precision=\"fp32\""});
    // A number may be rounded to another integer where the processor's differs in its last bits.
    expect_same_curve(device, processor, name == "zero 3" ? 1e-5 : 1e-4);
  }
  EXPECT_NE(metrics("zero ++ on devices")[1].loss, metrics("zero 3 on devices")[1].loss);
  EXPECT_NE(metrics("feedback on devices")[1].grad_norm,
            metrics("zero ++ on devices")[1].grad_norm);
}

TEST_F(DeviceShards, HaveTheSameBitsAgainAndAfterAResume) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const std::string precision = compute == DType::f32 ? "fp32" : "bf16";
    const std::vector<std::string> keys =
        with(with(on_device({}), with(kSmall, kZeroPlusPlus)),
             {"shard.secondary_wire=\"int8\"", "shard.error_feedback=0.8", "train.steps=3",
              "train.precision=\"" + precision + "\""});
    train_on(4, config("run " + precision, keys));
    const std::string expected = files("run " + precision, 3);
    ASSERT_FALSE(expected.empty());
    const std::string stopped = "stopped " + precision;
    train_on(4, config(stopped, with(keys, {"train.stop_after=1", "run.graphs=false"})));
    train_on(4, config(stopped, keys), {.resume = true});
    EXPECT_TRUE(files(stopped, 3) == expected);
  }
}

}  // namespace
}  // namespace tessera
