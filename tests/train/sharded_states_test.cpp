// Ranks that share out the optimizer's masters and moments (ZeRO-1) against ranks that all have
// them: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "support/error_of.h"
#include "support/rank_plans.h"
#include "train/cut_matrices.h"
#include "train/load_and_save.h"
#include "train/rank_runs.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

const std::string kSharedOut = "shard.optimizer=\"all\"";
const std::string kByMuon = "optimizer.name=\"muon\"";

/// A layout, and the rest of a run's configuration.
struct SharedRun {
  std::string name;
  int ranks;
  bool mixture;
  std::vector<std::string> keys;
};
void PrintTo(const SharedRun& run, std::ostream* out) { *out << run.name; }

const std::vector<SharedRun> kSharedRuns{
    {"TwoRanks", 2, false, {"train.micro_batch=1"}},
    {"FourRanks", 4, false, {"train.micro_batch=1"}},
    {"EightRanks", 8, false, {"train.micro_batch=1"}},
    {"TwoNodes", 4, false, {"train.micro_batch=1", "parallel.levels=[2]"}},
    {"PairsOfTwoNodes", 8, false, {"train.micro_batch=1", "parallel.levels=[2, 2]"}},
    {"Tensor", 4, false, {"parallel.tensor=2"}},
    {"Context", 4, false, {"parallel.context=2"}},
    {"ContextOnNodes", 8, false, {"parallel.context=2", "parallel.levels=[4]"}},
    {"Experts", 4, true, {"train.micro_batch=1", "parallel.expert=2"}},
    {"ExpertsOnNodes", 8, true, {"parallel.tensor=2", "parallel.expert=2", "parallel.levels=[4]"}},
    {"Fp32", 4, false, {"train.micro_batch=1", "train.precision=\"fp32\""}},
    {"Bf16", 4, true, {"train.micro_batch=1", "train.precision=\"bf16\""}},
    {"Bf16Gradients",
     4,
     false,
     {"train.micro_batch=1", "train.precision=\"bf16\"", "parallel.levels=[2]",
      "shard.gradients_wire=\"bf16\""}},
    {"Bf16GradientsOfContext",
     4,
     false,
     {"parallel.context=2", "train.precision=\"bf16\"", "shard.gradients_wire=\"bf16\""}},
    {"WholeBatches", 2, false, {"train.micro_batch=2", "optimizer.decay_rule=\"no_embedding\""}},
};

const std::vector<SharedRun> kMuonRuns{
    {"Muon", 2, false, {"train.micro_batch=1", kByMuon}},
    {"MuonThreeRanks",
     3,
     false,
     {"train.micro_batch=1", "train.global_batch=6", "model.layers=2", kByMuon}},
    {"MuonFourRanks", 4, true, {"train.micro_batch=1", kByMuon}},
    {"MuonEightRanks", 8, false, {"train.micro_batch=1", "train.precision=\"bf16\"", kByMuon}},
    {"MuonTensor", 8, false, {"parallel.tensor=2", "parallel.levels=[4]", kByMuon}},
    {"MuonUneven", 4, false, {"parallel.tensor=2", "model.feed_forward_size=301", kByMuon}},
    {"MuonBlocks",
     4,
     false,
     {"parallel.tensor=2", "optimizer.muon_split=\"blocks\"", "model.feed_forward_size=600",
      kByMuon}},
    {"MuonExperts", 8, true, {"parallel.tensor=2", "parallel.expert=2", kByMuon}},
};

class SharedStates : public Ranks, public ::testing::WithParamInterface<SharedRun> {
 protected:
  static RunConfig config_of(const std::string& run, const std::vector<std::string>& more = {}) {
    const SharedRun& of = GetParam();
    std::vector<std::string> keys = sizes_of(of);
    keys.insert(keys.end(), of.keys.begin(), of.keys.end());
    keys.insert(keys.end(), {"train.steps=2", "checkpoint.every=1", "run.check_replicas=1",
                             "optimizer.warmup_steps=1", "optimizer.clip_norm=0.1"});
    keys.insert(keys.end(), more.begin(), more.end());
    return config(run, keys);
  }

 private:
  /// Tables that are cut within a row, and norms that do not divide. With Muon matrices and experts
  /// that are cut.
  static std::vector<std::string> sizes_of(const SharedRun& of) {
    const bool large = std::ranges::find(of.keys, kByMuon) != of.keys.end();
    std::vector<std::string> keys{large ? "model.hidden_size=64" : "model.hidden_size=32",
                                  large ? "model.layers=3" : "model.layers=2"};
    if (of.mixture) {
      keys.insert(keys.end(), {"model.experts=8", "model.experts_per_token=2",
                               "model.feed_forward_size=0", "model.shared_experts=1",
                               large ? "model.expert_size=100" : "model.expert_size=16"});
    } else {
      keys.insert(keys.end(), {"model.vocabulary_size=261", large ? "model.feed_forward_size=300"
                                                                  : "model.feed_forward_size=152"});
    }
    return keys;
  }
};

/// Losses, norms and all that a checkpoint has: every clipped step has the bits of the run in which
/// each rank has all states. A run that goes on from a checkpoint of the other kind has them too.
TEST_P(SharedStates, HaveTheBitsOfStatesThatEachRankHas) {
  const int ranks = GetParam().ranks;
  train_on(ranks, config_of("each"));
  train_on(ranks, config_of("shared", {kSharedOut}));
  const auto each = metrics("each"), shared = metrics("shared");
  ASSERT_EQ(each.size(), 2U);
  ASSERT_EQ(shared.size(), 2U);
  // Whole sums of rounded gradients are rounded once more to be sent on, and pieces are not.
  const bool same_bits = config_of("each").shard.gradients_wire == WireFormat::fp32;
  for (size_t i = 0; i < each.size(); ++i) {
    if (same_bits) {
      EXPECT_EQ(each[i].loss, shared[i].loss) << "step " << i + 1;
      EXPECT_EQ(each[i].grad_norm, shared[i].grad_norm) << "step " << i + 1;
    }
    EXPECT_NEAR(each[i].loss / shared[i].loss, 1, 1e-4) << "step " << i + 1;
    EXPECT_NEAR(each[i].grad_norm / shared[i].grad_norm, 1, 1e-3) << "step " << i + 1;
    EXPECT_LT(shared[i].memory_bytes, each[i].memory_bytes);
    // Of Muon: the same but for the order in which ranks add up what each has measured.
    ASSERT_EQ(each[i].update_rms.has_value(), shared[i].update_rms.has_value());
    EXPECT_NEAR(shared[i].update_rms.value_or(0), each[i].update_rms.value_or(0), 1e-6);
    EXPECT_NEAR(shared[i].orthogonality_error.value_or(0), each[i].orthogonality_error.value_or(0),
                1e-6);
  }
  EXPECT_GT(each[0].grad_norm, 0.1) << "no step is clipped";
  const std::string expected = tensors("each", 2);
  if (same_bits) {
    EXPECT_TRUE(tensors("shared", 2) == expected) << "other weights or moments";
    for (const char* run : {"each", "shared"}) fs::remove_all(checkpoint(run, 2));
    train_on(ranks, config_of("each", {kSharedOut}), {.resume = true});
    EXPECT_TRUE(tensors("each", 2) == expected) << "shared out from a checkpoint on";
    train_on(ranks, config_of("shared"), {.resume = true});
    EXPECT_TRUE(tensors("shared", 2) == expected) << "shared out up to a checkpoint";
  }
  for (const char* run : {"each", "shared"}) fs::remove_all(folder(run));
}

/// Muon's matrices are whole on one rank, whichever it is. (Those of AdamW need no such test: their
/// bits are those of runs that others compare with one rank.)
class SharedStatesOfMuon : public SharedStates {};

TEST_P(SharedStatesOfMuon, AreTheModelOfOneRank) {
  const RunConfig config = config_of("none", {kSharedOut});
  const Verification found = verify(config, mesh_of(config, GetParam().ranks), {});
  // Ranks that have uneven pieces of matrices do not cut any.
  EXPECT_EQ(cuts_matrices(config, GetParam().ranks), GetParam().name != "MuonUneven");
  // Blocks for matrices are another algorithm.
  const bool same = config.optimizer.muon_split == MuonSplit::gather;
  EXPECT_EQ(found.passed(), same) << verification_text(found);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SharedStates, ::testing::ValuesIn(kSharedRuns),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(MuonOnLayouts, SharedStates, ::testing::ValuesIn(kMuonRuns),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(MuonOnLayouts, SharedStatesOfMuon, ::testing::ValuesIn(kMuonRuns),
                         [](const auto& info) { return info.param.name; });

using SharedStatesOfRanks = Ranks;

/// A rank keeps a piece of the masters and moments: with n ranks, 12 bytes an element become 12 /
/// n. What every rank needs whole stays: weights of bf16 and gradients of f32, 6 bytes.
TEST_F(SharedStatesOfRanks, TakeTheMemoryOfTheirPiece) {
  const auto kept = [&](int ranks, const std::vector<std::string>& more) {
    std::vector<std::string> keys{"train.micro_batch=1", "train.precision=\"bf16\"",
                                  "model.vocabulary_size=4096", "model.hidden_size=128",
                                  "model.feed_forward_size=512"};
    keys.insert(keys.end(), more.begin(), more.end());
    const RunConfig of = config("none", keys);
    std::vector<int64_t> bytes;
    for (const StepPlan& plan : plans_of_ranks(of, mesh_of(of, ranks))) {
      bytes.push_back(plan.memory.kept_bytes);
    }
    return bytes;
  };
  const auto each = static_cast<double>(kept(4, {}).front());
  for (const int64_t bytes : kept(4, {kSharedOut})) {
    EXPECT_NEAR(static_cast<double>(bytes) / each, (6 + 12 / 4.0) / 18, 0.02);
  }
}

TEST_F(SharedStatesOfRanks, RefuseOtherWordsByName) {
  const RunConfig other = config("none", {"shard.optimizer=\"data.0\""});
  EXPECT_THAT(error_of([&] { mesh_of(other, 2); }),
              AllOf(HasSubstr("shard.optimizer"), HasSubstr("\"node\", \"all\"")));
}

/// A layout of 4 ranks, and the groups that share its weights and gradients.
struct QuantisedRun {
  std::string name;
  bool mixture;
  std::vector<std::string> keys;
};
void PrintTo(const QuantisedRun& run, std::ostream* out) { *out << run.name; }

const std::vector<QuantisedRun> kQuantisedRuns{
    {"Data",
     false,
     {"parallel.levels=[2]", "train.micro_batch=1", "shard.weights=\"node\"",
      "shard.secondary=\"node\""}},
    {"Tensor", false, {"parallel.tensor=2", "shard.weights=2", "shard.secondary=2"}},
    {"Context", false, {"parallel.context=2", "shard.weights=2", "shard.secondary=\"all\""}},
    {"Experts",
     true,
     {"parallel.expert=2", "train.micro_batch=1", "shard.weights=2", "shard.secondary=\"all\""}},
    {"Stages",
     false,
     {"parallel.pipeline=2", "parallel.schedule=\"zb-h1\"", "train.recompute=[\"layer\"]",
      "shard.weights=2", "shard.secondary=2"}},
    {"Muon",
     false,
     {"train.micro_batch=1", "model.tied_head=true", "shard.weights=2", "shard.gather_again=false",
      kByMuon}},
};

/// Sums of fp32 in another order are all that differs from one rank.
TEST_F(SharedStatesOfRanks, OfZero3HaveTheLossesOfOneRankForTwentySteps) {
  const std::vector<std::string> keys{"train.precision=\"fp32\"", "model.hidden_size=64",
                                      "model.feed_forward_size=300", "model.vocabulary_size=261",
                                      "train.steps=20"};
  train_on(1, config("one", keys));
  std::vector<std::string> zero3 = keys;
  zero3.insert(zero3.end(), {"train.micro_batch=1", "parallel.levels=[2, 2]", kSharedOut,
                             "shard.gradients=\"all\"", "shard.weights=\"all\""});
  train_on(8, config("zero3", zero3));
  const auto one = metrics("one"), cut = metrics("zero3");
  ASSERT_EQ(one.size(), 20U);
  ASSERT_EQ(cut.size(), 20U);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(cut[i].loss / one[i].loss, 1, 1e-5) << "step " << i + 1;
  }
  EXPECT_LT(one.back().loss, 0.8 * one.front().loss) << "nothing was learnt";
}

class QuantisedStates : public Ranks, public ::testing::WithParamInterface<QuantisedRun> {};

/// A checkpoint has no rounding errors of gradients. They begin anew after it, so a run that goes
/// on has the bits of one that is resumed. Fed back, they change the weights.
TEST_P(QuantisedStates, GoOnFromACheckpointBitForBit) {
  std::vector<std::string> keys{"train.precision=\"bf16\"",
                                "shard.optimizer=\"all\"",
                                "shard.gradients=\"all\"",
                                "shard.weights_wire=\"int8\"",
                                "shard.secondary_wire=\"int8\"",
                                "shard.gradients_wire=\"int4\"",
                                "shard.block=64",
                                "shard.error_feedback=0.8",
                                "train.steps=4",
                                "checkpoint.every=2",
                                "run.check_replicas=1",
                                "optimizer.warmup_steps=1",
                                "checkpoint.keep=4"};
  keys.insert(keys.end(), GetParam().keys.begin(), GetParam().keys.end());
  const auto config_of = [&](const std::string& run) {
    return GetParam().mixture ? mixture(run, keys) : config(run, keys);
  };
  train_on(4, config_of("whole"));
  const std::string expected = tensors("whole", 4);
  fs::remove_all(checkpoint("whole", 4));
  train_on(4, config_of("whole"), {.resume = true});
  EXPECT_TRUE(tensors("whole", 4) == expected);
  keys.emplace_back("shard.error_feedback=0");
  train_on(4, config_of("without"));
  EXPECT_FALSE(tensors("without", 4) == expected);
  for (const char* run : {"whole", "without"}) fs::remove_all(folder(run));
}

INSTANTIATE_TEST_SUITE_P(Layouts, QuantisedStates, ::testing::ValuesIn(kQuantisedRuns),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
