#include "train/replica_check.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "plan/run_target.h"
#include "support/error_of.h"
#include "support/random_batches.h"
#include "train/rank_runs.h"
#include "train/rank_trainer.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig checked_mixture() {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.vocabulary_size = 32;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_size = 8;
  config.balance_biases = BiasBalancing::controller;
  return config;
}

/// One rank that trains.
struct TrainingRank {
  TrainingRank(RankGroups& groups, const ProgramSize& size)
      : rank(groups.rank()),
        runtime(host_target(1)),
        programs(step_programs(
            write_training(checked_mixture(), DType::bf16, size, {}, {groups.mesh(), rank}),
            OptimizerConfig{})),
        executor(programs.list(), programs.actions(), runtime),
        store(store_of(programs, executor)),
        step(programs, executor, store),
        control(groups),
        check(executor, static_cast<int>(programs.list().size()), store, control) {
    runtime.join(groups);
    store.initialize(1, 1);
  }
  void change(const Tensor& tensor) const { tensor.raw()[0] ^= std::byte{1}; }

  int rank;
  Runtime runtime;
  StepPrograms programs;
  Executor executor;
  ParameterStore store;
  TrainingStep step;
  RankControl control;
  ReplicaCheck check;
};

using OnRank = std::function<void(TrainingRank&)>;
using OnInputs = std::function<void(TrainingRank&, int program)>;

/// Trains for a step on every rank of a mesh, and does something on each: after the inputs of a
/// program were written, and after the step.
void on_trained_ranks(const MeshSizes& sizes, const OnRank& act, const OnInputs& change = {}) {
  const Mesh mesh(sizes);
  const ProgramSize size{.sequences = 4, .context = 8, .document_mask = true};
  const auto batches = testing::random_batches(size, checked_mixture().vocabulary_size, 1, 1, 5);
  World world(mesh.ranks());
  run_mesh(world, mesh, [&](RankGroups& groups) {
    TrainingRank rank(groups, size);
    rank.check.check_kept();
    rank.step.on_inputs([&](const TrainingStep::BegunRun& run) {
      if (change) change(rank, run.program);
      rank.check.check_inputs(run.program, run.frame);
    });
    rank.step.forward_backward(batches.front());
    rank.check.check_kept();  // gradients are partial sums now, which differ
    rank.step.update({}, {.step = 1, .steps = 2});
    rank.check.check_kept();
    act(rank);
  });
}

/// What the check says after `change` was called on one rank.
std::string found_after(const MeshSizes& sizes, int changed, const OnRank& change) {
  return error_of([&] {
    on_trained_ranks(sizes, [&](TrainingRank& rank) {
      if (rank.rank == changed) change(rank);
      rank.check.check_kept();
    });
  });
}

const MeshSizes& tensor_and_data() {
  static const MeshSizes sizes{.tensor = 2, .data = {2}};
  return sizes;
}

const MeshSizes& experts_and_data() {
  static const MeshSizes sizes{.data = {4}, .expert = 2};
  return sizes;
}

TEST(ReplicaCheck, NamesTheWeightThatOneRankHasOtherwise) {
  const auto weight = [](const std::string& name) {
    return [name](TrainingRank& rank) { rank.change(rank.store.memory(name, Kept::weight)); };
  };
  EXPECT_EQ(found_after(tensor_and_data(), 3, weight("layers.0.attention.query")),
            "layers.0.attention.query (tensor: sharded (dim 0, flat)) must be the same on ranks "
            "1 3, but has 2 values: those of rank 1, of rank 3");
  EXPECT_EQ(found_after(tensor_and_data(), 2, weight("norm.weight")),
            "norm.weight (invariant) must be the same on ranks 0 1 2 3, but has 2 values: those of "
            "rank 2, of ranks 0 1 3");
  EXPECT_EQ(found_after(experts_and_data(), 0, weight("layers.1.experts.up")),
            "layers.1.experts.up (expert: sharded (dim 0, flat)) must be the same on ranks 0 2, "
            "but has 2 values: those of rank 0, of rank 2");
}

TEST(ReplicaCheck, NamesMastersMomentsAndGradients) {
  for (const MeshSizes& sizes : {tensor_and_data(), experts_and_data()}) {
    const std::string name = "layers.1.router.weight";
    EXPECT_THAT(found_after(sizes, 1,
                            [&](TrainingRank& rank) {
                              rank.change(rank.store.memory(name, Kept::second_moment));
                            }),
                HasSubstr("second_moment:" + name + " (invariant) must be the same on ranks"));
    EXPECT_THAT(found_after(sizes, 1,
                            [&](TrainingRank& rank) {
                              rank.change(rank.store.memory("embedding.weight", Kept::master));
                            }),
                HasSubstr("master:embedding.weight"));
    EXPECT_THAT(found_after(sizes, 3,
                            [&](TrainingRank& rank) {
                              rank.change(rank.executor.tensor("target_seed"));
                              rank.change(rank.executor.tensor("token_seed"));
                            }),
                AllOf(HasSubstr("target_seed"), HasSubstr("of rank 3"), HasSubstr("1 more")));
  }
}

/// Returns the working copy of the moments of a layer's balancing biases, with padding.
Tensor working_moment(const TrainingRank& rank) {
  for (const ValueInfo& info : rank.executor.program(0).values()) {
    if (info.name.starts_with("working:first_moment:")) return rank.executor.tensor(info.name);
  }
  throw InternalError("no working copy");
}

TEST(ReplicaCheck, NamesWorkingCopiesByParameter) {
  EXPECT_THAT(found_after(tensor_and_data(), 1,
                          [](TrainingRank& rank) { rank.change(working_moment(rank)); }),
              HasSubstr("working:first_moment:layers.0.router.balancing_biases (invariant) must be "
                        "the same on ranks 0 1 2 3"));
  on_trained_ranks(tensor_and_data(), [](TrainingRank& rank) {
    const Tensor value = working_moment(rank);
    if (rank.rank == 1) value.raw()[value.bytes() - 1] ^= std::byte{1};  // in the padding
    rank.check.check_kept();
  });
}

TEST(ReplicaCheck, LetsPiecesDiffer) {
  // Both copies of one piece of a weight, and of the sequences.
  on_trained_ranks(
      tensor_and_data(),
      [](TrainingRank& rank) {
        if (rank.rank % 2 == 1)
          rank.change(rank.store.memory("layers.0.attention.query", Kept::master));
        rank.check.check_kept();
      },
      [](TrainingRank& rank, int program) {
        if (program == 0 && rank.rank / 2 == 1) rank.change(rank.executor.tensor("tokens"));
      });
}

TEST(ReplicaCheck, NamesTheInputThatOneRankHasOtherwise) {
  const auto found = [](const MeshSizes& sizes, const std::string& name, bool update) {
    return error_of([&] {
      on_trained_ranks(sizes, {}, [&](TrainingRank& rank, int program) {
        const int number = update ? rank.programs.update_number() : 0;
        if (program == number && rank.rank == 1) {
          rank.change(rank.executor.tensor(name, number));
        }
      });
    });
  };
  EXPECT_THAT(found(tensor_and_data(), "tokens", false),
              AllOf(HasSubstr("tokens ("), HasSubstr("must be the same on ranks 0 1, but")));
  EXPECT_THAT(found(experts_and_data(), "learning_rate", true),
              AllOf(HasSubstr("learning_rate"), HasSubstr("of rank 1, of ranks 0 2 3")));
}

/// Runs whose ranks do not all go by the same configuration.
class ReplicaCheckInRuns : public Ranks {
 protected:
  static RunConfig config(const std::string& run, std::vector<std::string> more) {
    more.insert(more.begin(), {"train.steps=4", "train.global_batch=4", "train.precision=\"fp32\"",
                               "optimizer.warmup_steps=1", "checkpoint.every=0"});
    return resolve(Ranks::config(run, more));
  }

  /// Trains on two ranks with configurations of their own.
  static void train_two(const RunConfig& first, const RunConfig& second, bool resume = false) {
    const std::vector<RunConfig> configs{first, second};
    const Mesh mesh = mesh_of(first, 2);
    std::vector<SharedRun> runs;
    for (const RunConfig& own : configs) {
      runs.push_back(
          {.config = own, .phases = phases_of(own), .mesh = mesh, .data = open_data(own.data)});
    }
    World world(2);
    run_mesh(world, mesh, [&](RankGroups& groups) {
      const auto rank = static_cast<size_t>(groups.rank());
      const RankControl control(groups);
      Runtime runtime(run_target(configs[rank], nullptr, 2));
      runtime.join(groups);
      StepPlan plan = plan_step(configs[rank], runtime.target(), {mesh, groups.rank()});
      RankTrainer(runs[rank], std::move(plan), {}, runtime, control, nullptr, Logger::silent())
          .run({.resume = resume});
    });
  }
};

TEST_F(ReplicaCheckInRuns, EndTheRunAtTheStepWhereCopiesDiffer) {
  const auto run = [](const std::string& layout, const std::string& every, const std::string& key) {
    const std::string check = "run.check_replicas=" + every;
    train_two(config("run", {layout, check}), config("run", {layout, check, key}));
  };
  const std::string data = "parallel.tensor=1";
  const std::string tensor = "parallel.tensor=2";
  EXPECT_THAT(error_of([&] { run(data, "3", "train.seed=2"); }),
              AllOf(HasSubstr("step 0: "), HasSubstr("those of rank 0, of rank 1"),
                    HasSubstr("test their machine"), HasSubstr("no checkpoint was saved yet")));
  for (const std::string& layout : {data, tensor}) {
    SCOPED_TRACE(layout);
    EXPECT_THAT(error_of([&] { run(layout, "3", "optimizer.learning_rate=0.5"); }),
                HasSubstr("step 3: learning_rate (invariant)"));
    EXPECT_THAT(error_of([&] { run(layout, "2", "optimizer.beta1=0.5"); }),
                AllOf(HasSubstr("step 2: "),
                      HasSubstr(layout == data ? "embedding.weight (tensor: sharded"
                                               : "norm.weight (invariant) must be the same")));
    run(layout, "1", "run.csv=true");         // nothing differs
    run(layout, "0", "optimizer.beta1=0.5");  // nobody looks
  }
}

// Each piece is read by one rank, so a checkpoint that differs between machines makes no copies
// that differ. But such a folder is of no use to save into.
TEST_F(ReplicaCheckInRuns, RefuseToSaveIntoFoldersThatAreNotShared) {
  EXPECT_THAT(
      error_of([&] {
        train_two(config("one", {"train.stop_after=2"}), config("two", {"train.stop_after=2"}));
      }),
      AllOf(HasSubstr("rank 1: "), HasSubstr("two/checkpoints"), HasSubstr("which rank 0 has made"),
            HasSubstr("a file system that all ranks share")));
  EXPECT_FALSE(fs::exists(folder("one") / "checkpoints"));
}

}  // namespace
}  // namespace tessera
