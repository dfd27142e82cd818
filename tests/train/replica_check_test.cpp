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
#include "verify/pipeline_trials.h"

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
  TrainingRank(RankGroups& groups, const LayoutTrial& trial)
      : rank(groups.rank()),
        runtime(host_target(1)),
        programs(layout_programs(trial, rank)),
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

LayoutTrial checked_trial(const MeshSizes& sizes) {
  LayoutTrial trial{.model = checked_mixture(),
                    .size = {.sequences = 4, .context = 8, .document_mask = true},
                    .compute = DType::bf16,
                    .mesh = Mesh(sizes)};
  trial.micro_batches = 1;
  return trial;
}

/// Trains for a step on every rank of a trial, and does something on each: after the inputs of a
/// program were written, and after the step.
void on_trained_ranks(const LayoutTrial& trial, const OnRank& act, const OnInputs& change = {}) {
  const auto batches =
      testing::random_batches(trial.size, trial.model.vocabulary_size, 1, trial.micro_batches, 5);
  World world(trial.mesh.ranks());
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    TrainingRank rank(groups, trial);
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
std::string found_after(const LayoutTrial& trial, int changed, const OnRank& change) {
  return error_of([&] {
    on_trained_ranks(trial, [&](TrainingRank& rank) {
      if (rank.rank == changed) change(rank);
      rank.check.check_kept();
    });
  });
}
std::string found_after(const MeshSizes& sizes, int changed, const OnRank& change) {
  return found_after(checked_trial(sizes), changed, change);
}

/// Changes a tensor of a parameter.
OnRank changed(const std::string& name, Kept kind = Kept::weight) {
  return [=](TrainingRank& rank) { rank.change(rank.store.memory(name, kind)); };
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
  EXPECT_EQ(found_after(tensor_and_data(), 3, changed("layers.0.attention.query")),
            "layers.0.attention.query (tensor: sharded (dim 0, flat)) must be the same on ranks "
            "1 3, but has 2 values: those of rank 1, of rank 3");
  EXPECT_EQ(found_after(tensor_and_data(), 2, changed("norm.weight")),
            "norm.weight (invariant) must be the same on ranks 0 1 2 3, but has 2 values: those of "
            "rank 2, of ranks 0 1 3");
  EXPECT_EQ(found_after(experts_and_data(), 0, changed("layers.1.experts.up")),
            "layers.1.experts.up (expert: sharded (dim 0, flat)) must be the same on ranks 0 2, "
            "but has 2 values: those of rank 0, of rank 2");
}

TEST(ReplicaCheck, NamesMastersMomentsAndGradients) {
  for (const MeshSizes& sizes : {tensor_and_data(), experts_and_data()}) {
    const std::string name = "layers.1.router.weight";
    EXPECT_THAT(found_after(sizes, 1, changed(name, Kept::second_moment)),
                HasSubstr("second_moment:" + name + " (invariant) must be the same on ranks"));
    EXPECT_THAT(found_after(sizes, 1, changed("embedding.weight", Kept::master)),
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
  on_trained_ranks(checked_trial(tensor_and_data()), [](TrainingRank& rank) {
    const Tensor value = working_moment(rank);
    if (rank.rank == 1) value.raw()[value.bytes() - 1] ^= std::byte{1};  // in the padding
    rank.check.check_kept();
  });
}

TEST(ReplicaCheck, LetsPiecesDiffer) {
  // Both copies of one piece of a weight, and of the sequences.
  on_trained_ranks(
      checked_trial(tensor_and_data()),
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
      on_trained_ranks(checked_trial(sizes), {}, [&](TrainingRank& rank, int program) {
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

/// Two stages of two data ranks each.
LayoutTrial two_stages(bool tied) {
  ModelConfig model = checked_mixture();
  model.layers = 4;
  model.tied_head = tied;
  LayoutTrial trial = trial_of(model, {.stages = 2, .micro_batches = 3}, {.data = {2}});
  trial.size.context = 8;
  trial.compute = DType::bf16;
  return trial;
}

TEST(ReplicaCheck, NamesWhatOneRankOfAPipelineStageHasOtherwise) {
  const LayoutTrial trial = two_stages(/*tied=*/false);
  for (const int rank : {0, 1, 2, 3}) {
    SCOPED_TRACE(rank);
    const int stage = trial.mesh.stage(rank);
    std::vector<int> others;
    for (int other = 0; other < 4; ++other) {
      if (other != rank && trial.mesh.stage(other) == stage) others.push_back(other);
    }
    ASSERT_EQ(others.size(), 1U);
    const std::string name = fmt::format("layers.{}.attention.output", 2 * stage + 1);
    const std::string found = found_after(trial, rank, changed(name));
    EXPECT_THAT(found, AllOf(HasSubstr(name + " ("), HasSubstr("but has 2 values"),
                             HasSubstr(fmt::format("of rank {}", rank)),
                             HasSubstr(fmt::format("of rank {}", others[0]))));
    EXPECT_THAT(found_after(trial, rank, changed(name, Kept::first_moment)),
                HasSubstr("first_moment:" + name));
  }
}

TEST(ReplicaCheck, NamesATiedHeadsTableThatOneStageHasOtherwise) {
  const LayoutTrial trial = two_stages(/*tied=*/true);
  // Both data ranks of a stage: within the stage nothing differs.
  const auto on_stage = [&](int stage, Kept kind) {
    return error_of([&] {
      on_trained_ranks(trial, [&](TrainingRank& rank) {
        rank.check.check_kept();
        if (trial.mesh.stage(rank.rank) == stage) changed("embedding.weight", kind)(rank);
        rank.check.check_kept();
      });
    });
  };
  for (const int stage : {0, 1}) {
    EXPECT_THAT(on_stage(stage, Kept::weight),
                AllOf(HasSubstr("embedding.weight must be the same on ranks "),
                      HasSubstr("in two pipeline stages, but is not")));
    EXPECT_THAT(on_stage(stage, Kept::second_moment),
                HasSubstr("second_moment:embedding.weight must be the same on ranks "));
  }
  // One of them alone: the difference within its stage is named.
  EXPECT_THAT(found_after(trial, 3, changed("embedding.weight")),
              AllOf(HasSubstr("embedding.weight ("), HasSubstr("of rank 3")));
}

TEST(ReplicaCheck, NamesTheInputThatOneRankOfAPipelineStageHasOtherwise) {
  const LayoutTrial trial = two_stages(/*tied=*/false);
  const std::string found = error_of([&] {
    on_trained_ranks(trial, {}, [](TrainingRank& rank, int program) {
      const int update = rank.programs.update_number();
      if (program != update || rank.rank != 3) return;
      rank.change(rank.executor.tensor("learning_rate", update));
    });
  });
  EXPECT_THAT(found, AllOf(HasSubstr("learning_rate (invariant)"), HasSubstr("of rank 3")));
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

TEST_F(ReplicaCheckInRuns, PassPipelines) {
  const std::string check = "run.check_replicas=1", layers = "model.layers=4";
  for (const std::string tied : {"model.tied_head=false", "model.tied_head=true"}) {
    for (const std::string shared : {"shard.optimizer=\"none\"", "shard.optimizer=\"all\""}) {
      SCOPED_TRACE(tied + ", " + shared);
      const RunConfig run = config(
          "pipeline", {check, layers, tied, shared, "parallel.pipeline=2", "train.micro_batch=1"});
      EXPECT_EQ(train_on(4, run).step, 4);
      fs::remove_all(folder("pipeline"));
    }
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
