// Runs with communication beside computing against the same runs without: the same bits.
#include <ostream>

#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "plan/programs.h"
#include "support/slow_hardware.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

/// A layout, and the rest of a run's configuration.
struct OverlappedRun {
  std::string name;
  int ranks;
  bool mixture;
  std::vector<std::string> keys;
  bool takes_turns = false;  ///< whether its micro-batches must
  bool is_slow = false;      ///< whether the order goes by the rates of a slow processor
};
void PrintTo(const OverlappedRun& run, std::ostream* out) { *out << run.name; }

const std::string kStates = "shard.optimizer=\"all\"";
const std::string kGradients = "shard.gradients=\"all\"";
const std::string kWeights = "shard.weights=\"all\"";

const std::vector<OverlappedRun> kRuns{
    {"Data", 4, false, {}},
    {"Nodes", 4, false, {"parallel.levels=[2]", "shard.gradients_wire=\"bf16\""}},
    {"Tensor", 4, false, {"parallel.tensor=2"}, true},
    {"TensorOfFiveMicroBatches",
     2,
     false,
     {"parallel.tensor=2", "train.global_batch=5", "train.recompute=['layer']"},
     true},
    {"TensorWithATiedHead", 2, false, {"parallel.tensor=2", "model.tied_head=true"}, true, true},
    {"TensorOfASlowProcessor",
     2,
     false,
     {"parallel.tensor=2", "train.global_batch=3", "parallel.overlap_memory='48 KiB'"},
     true,
     true},
    {"TensorInLittleMemory", 2, false, {"parallel.tensor=2", "parallel.overlap_memory='4 KiB'"}},
    {"TensorOfUnevenPieces", 2, false, {"parallel.tensor=2", "model.feed_forward_size=49"}, true},
    {"Context", 4, false, {"parallel.context=2"}},
    {"ExpertsByGathers",
     4,
     true,
     {"parallel.expert=2", "parallel.expert_exchange='all_gather'"},
     true},
    {"ExpertsByExchange",
     4,
     true,
     {"parallel.expert=2", "parallel.expert_exchange='all_to_all'"},
     true},
    {"ZayaWithBalancedRouters",
     4,
     true,
     {"model.family='zaya'", "parallel.expert=2", "parallel.tensor=2", "train.global_batch=6",
      "model.head_dim=8", "model.tied_head=false", "model.experts=4", "model.router_size=8",
      "model.shared_experts=0"},
     true,
     true},
    {"PhasesOfOneToFourMicroBatches",
     2,
     false,
     {"parallel.tensor=2",
      "train.phases=[{steps = 1}, {steps = 1, global_batch = 1}, {steps = 1, global_batch = 3}]",
      "train.global_batch=4"},
     true,
     true},
    {"States", 4, false, {kStates}},
    {"Gradients", 4, true, {kStates, kGradients}, true},
    {"Weights", 4, false, {kStates, kGradients, kWeights}},
    {"WeightsInLittleMemory",
     2,
     false,
     {kStates, kGradients, kWeights, "parallel.overlap_memory='4 KiB'"}},
    {"WeightsOfPairs",
     4,
     true,
     {"parallel.levels=[2]", "shard.weights=2", "shard.gradients='node'", kStates,
      "shard.weights_wire='int8'", "shard.gradients_wire='int4'"}},
    {"Muon", 4, false, {kStates, "optimizer.name=\"muon\""}},
    {"Stages", 4, false, {"parallel.pipeline=2", kStates}},
    {"StagesInHalves",
     4,
     true,
     {"model.layers=4", "parallel.pipeline=2", "parallel.schedule='zb-v'", "parallel.expert=2"}},
    {"All", 8, true, {"parallel.pipeline=2", "parallel.expert=2", "parallel.tensor=2", kStates}},
};

class OverlapBits : public Ranks, public ::testing::WithParamInterface<OverlappedRun> {};

/// With an evaluation between steps.
TEST_P(OverlapBits, AreThoseOfARunWithout) {
  const OverlappedRun& run = GetParam();
  const auto config_with = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(),
                {"train.micro_batch=1", "train.global_batch=8", "train.steps=3",
                 "optimizer.warmup_steps=2", "checkpoint.every=0", "train.evaluate_every=2",
                 "train.evaluate_batches=4", "train.precision='bf16'", "run.hardware=''"});
    more.insert(more.end(), run.keys.begin(), run.keys.end());
    const fs::path hardware = this->folder("slow.json");
    testing::write_slow_hardware(hardware, testing::two_threads());
    if (run.is_slow) more.push_back("run.hardware='" + hardware.string() + "'");
    const std::string folder = run.name + name;
    return run.mixture ? mixture(folder, more) : config(folder, more);
  };
  const RunConfig overlapped = config_with("-on", {});
  const StepPrograms programs = step_programs(overlapped, {mesh_of(overlapped, run.ranks), 0});
  if (run.takes_turns) {
    EXPECT_FALSE(programs.sets.front().turns.empty());
  }
  train_on(run.ranks, config_with("-off", {"parallel.overlap=false"}));
  train_on(run.ranks, overlapped);
  expect_same_training(metrics(run.name + "-on"), metrics(run.name + "-off"), 0);
  EXPECT_TRUE(tensors(run.name + "-on", 3) == tensors(run.name + "-off", 3))
      << "other weights or moments";
}

INSTANTIATE_TEST_SUITE_P(Layouts, OverlapBits, ::testing::ValuesIn(kRuns),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
