// Muon whose states the ranks share out: what a rank holds and gets for it.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "ops/host_target.h"
#include "support/random_batches.h"
#include "support/shared_states.h"
#include "train/training_step.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

/// What a rank held and got in the update of a step.
struct HeldByRank {
  int64_t own_elements = 0;                       // of matrices, whose states it has
  int64_t temporary_bytes = 0;                    // the most at once
  int64_t workspace_bytes = 0;                    // of Newton-Schulz
  std::map<std::string, int64_t> exchanged = {};  // bytes got, by operation
};

constexpr int64_t kHidden = 96, kInner = 200, kLargest = kHidden * kInner;

LayoutTrial trial_on(int ranks) {
  ModelConfig model;
  model.layers = 3;
  model.hidden_size = kHidden;
  model.heads = 4;
  model.kv_heads = 2;
  model.feed_forward_size = kInner;
  model.vocabulary_size = 64;
  LayoutTrial trial{.model = model,
                    .size = {.sequences = 8, .context = 16},
                    .mesh = Mesh(MeshSizes{.data = {ranks}})};
  trial.shard.axes = testing::states_over_all(trial.mesh);
  trial.optimizer.name = OptimizerName::muon;
  return trial;
}

int64_t elements_of_matrices(const StepPrograms& programs) {
  int64_t elements = 0;
  for (const ParameterUnit& unit : programs.model.parameters.units()) {
    if (unit.matrices) elements += unit.elements;
  }
  return elements;
}

HeldByRank held_by(RankGroups& groups, const LayoutTrial& trial) {
  HeldByRank held;
  const StepPrograms programs = layout_programs(trial, groups.rank());
  const Program& update = programs.update.program;
  Runtime runtime(host_target(1));
  runtime.join(groups);
  Executor executor(programs.list(), programs.actions(), runtime);
  ParameterStore store = store_of(programs, executor);
  TrainingStep step(programs, executor, store);
  store.initialize(trial.seed, 1);
  for (const ParameterSpec& spec : store.parameters()) {
    if (!store.memory(spec.name, Kept::second_moment).defined())
      held.own_elements += store.memory(spec.name, Kept::first_moment).elements();
  }
  const Action whole{.segment = Segment::whole};
  const Program* const alone[] = {&update};
  const MemoryPlan memory = plan_memory(alone, {&whole, 1}, runtime.target());
  held.temporary_bytes = memory.live_bytes - memory.kept_bytes;
  for (const Node& node : update.nodes()) {
    if (node.operation->name() != "newton_schulz") continue;
    held.workspace_bytes =
        std::max(held.workspace_bytes,
                 node.operation->workspace_bytes(runtime.target(), update.specs(node.inputs)));
  }
  Communicator& group = groups.over(trial.mesh.data(), word(Lane::reductions));
  int64_t known = 0;
  executor.set_observer([&](const Program& of, const Node& node, std::span<const Tensor>) {
    if (&of != &update) return;
    const int64_t received = group.traffic(Collective::message).received_bytes;
    held.exchanged[std::string(node.operation->name())] += received - known;
    known = received;
  });
  const auto steps = testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 1, 3);
  step.forward_backward(steps[0]);
  step.update(trial.optimizer, {.step = 1, .steps = 2});
  EXPECT_TRUE(step.results().wait().updated);
  return held;
}

/// By the plan, which the executor allocates, a rank holds what it orthogonalises of its own shard,
/// and two matrices that are cut at its edges. With an all-gather it would hold all matrices
/// (ZAYA1, section V-D: 99 % of the states' memory more).
TEST(SharedMuon, ARankHoldsItsShardAndTwoMatrices) {
  for (const int ranks : {2, 4, 8}) {
    const LayoutTrial trial = trial_on(ranks);
    std::vector<HeldByRank> held(static_cast<size_t>(ranks));
    int64_t all = 0;
    World world(ranks);
    run_mesh(world, trial.mesh, [&](RankGroups& groups) {
      held[static_cast<size_t>(groups.rank())] = held_by(groups, trial);
    });
    for (const HeldByRank& rank : held) all += rank.own_elements;
    EXPECT_EQ(all, elements_of_matrices(layout_programs(trial, 0)));
    int64_t exchanged = 0;
    for (const HeldByRank& rank : held) {
      SCOPED_TRACE(ranks);
      // An update is computed in f64 here. Pieces end at multiples of 4096 elements.
      EXPECT_NEAR(static_cast<double>(rank.own_elements), static_cast<double>(all) / ranks, 4160);
      constexpr int64_t kRest = 64 * 1024;  // numbers, sums of squares, embeddings' gradients
      EXPECT_LE(rank.temporary_bytes - rank.workspace_bytes,
                8 * (rank.own_elements + 2 * kLargest) + kRest);
      int64_t of_rank = 0;
      for (const auto& [operation, bytes] : rank.exchanged) {
        if (bytes == 0) continue;
        EXPECT_TRUE(operation == "gather_at_owners" || operation == "return_to_pieces")
            << operation;
        EXPECT_LE(bytes, 2 * kLargest * 8);
        of_rank += bytes;
      }
      exchanged += of_rank;
    }
    EXPECT_GT(exchanged, 0);
    const auto most = std::ranges::max(held, {}, &HeldByRank::temporary_bytes);
    EXPECT_LT(most.temporary_bytes - most.workspace_bytes, 8 * all) << "what an all-gather holds";
    // Each cut sends less than a matrix there and back.
    EXPECT_LE(exchanged, (ranks - 1) * 2 * kLargest * 8);
  }
}

}  // namespace
}  // namespace tessera
