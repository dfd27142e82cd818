// Which number of a step was the first that is not finite, where ranks find several.
#include <cmath>
#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "support/random_batches.h"
#include "verify/layout_run.h"
#include "verify/pipeline_trials.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A number of a parameter's weights that is not finite, in one rank's memory alone; or of its
/// gradient, once the step has begun.
struct PlantedNan {
  int rank;
  std::string parameter;
  Kept kind = Kept::weight;
};

ModelConfig small_dense(int64_t layers) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = 16;
  model.heads = 4;
  model.kv_heads = 4;
  model.feed_forward_size = 24;
  model.vocabulary_size = 32;
  return model;
}

/// What the ranks of a trial say of a step, after NaNs were planted. Each rank has micro-batches of
/// its own.
std::set<std::string> found_non_finite(const LayoutTrial& trial,
                                       const std::vector<PlantedNan>& planted) {
  const auto batches =
      testing::random_batches(trial.size, trial.model.vocabulary_size, 1, trial.micro_batches, 7)
          .front();
  std::set<std::string> said;
  std::mutex mutex;
  World world(trial.mesh.ranks(), std::chrono::seconds(60));
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    Runtime runtime(host_target(1));
    runtime.join(groups);
    const StepPrograms programs = layout_programs(trial, groups.rank());
    Executor executor(programs.list(), programs.actions(), runtime);
    const ParameterStore store = store_of(programs, executor);
    store.initialize(7, 1);
    TrainingStep step(programs, executor, store);
    for (const auto& [rank, parameter, kind] : planted) {
      if (rank != groups.rank()) continue;
      double& number = store.memory(parameter, kind).data<double>()[1];
      if (kind == Kept::weight) {
        number = NAN;
      } else {
        step.on_inputs([&number](const TrainingStep::BegunRun&) { number = NAN; });
      }
    }
    const std::string text = step.find_non_finite(batches, RankControl(groups));
    const std::scoped_lock lock(mutex);
    said.insert(text);
  });
  return said;
}

/// Without a pipeline, with two micro-batches a step.
std::set<std::string> found_non_finite(const Mesh& mesh, const std::vector<PlantedNan>& planted) {
  const LayoutTrial trial{
      .model = small_dense(2), .size = {.sequences = 4, .context = 16}, .mesh = mesh};
  return found_non_finite(trial, planted);
}

TEST(NonFiniteOfRanks, IsNamedWithTheRankThatMadeIt) {
  const std::vector<PlantedNan> one{{1, "layers.1.feed_forward.down"}};
  for (const MeshSizes& sizes : {MeshSizes{.data = {2}}, MeshSizes{.tensor = 2},
                                 MeshSizes{.context = 2}, MeshSizes{.tensor = 2, .data = {2}}}) {
    const Mesh mesh(sizes);
    SCOPED_TRACE(mesh.text());
    const std::set<std::string> said = found_non_finite(mesh, one);
    ASSERT_EQ(said.size(), 1U) << ::testing::PrintToString(said);
    EXPECT_THAT(*said.begin(), AllOf(HasSubstr("on rank 1, layers.1.feed_forward."),
                                     HasSubstr("made by linear"), HasSubstr("forward pass")));
  }
}

/// The search must not sum gradients over the ranks: all of them would have it then.
TEST(NonFiniteOfRanks, IsAGradientOfTheRankWhoseDataMadeIt) {
  const std::string parameter = "layers.1.feed_forward.down";
  EXPECT_THAT(found_non_finite(Mesh({.data = {2}}), {{1, parameter, Kept::gradient}}),
              ::testing::ElementsAre(
                  HasSubstr("on rank 1, the gradient of " + parameter + " is not finite")));
}

TEST(NonFiniteOfRanks, IsTheEarliestOfTheProgramNotOfTheFirstRank) {
  const std::vector<PlantedNan> several{{0, "layers.1.feed_forward.down"},
                                        {2, "layers.0.feed_forward.down"},
                                        {3, "layers.1.attention.output"}};
  for (const MeshSizes& sizes : {MeshSizes{.data = {4}}, MeshSizes{.tensor = 2, .data = {2}}}) {
    const Mesh mesh(sizes);
    SCOPED_TRACE(mesh.text());
    const std::set<std::string> said = found_non_finite(mesh, several);
    ASSERT_EQ(said.size(), 1U) << ::testing::PrintToString(said);
    EXPECT_THAT(*said.begin(), HasSubstr("on rank 2, layers.0.feed_forward."));
  }
}

/// Stages of one layer each, alone and with two ranks of each.
LayoutTrial four_stages(ScheduleKind kind, int chunks, const MeshSizes& sizes) {
  return trial_of(small_dense(4 * chunks),
                  {.kind = kind, .stages = 4, .chunks_per_stage = chunks, .micro_batches = 4},
                  sizes);
}

TEST(NonFiniteOfRanks, IsNamedWithItsStage) {
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.tensor = 2}, MeshSizes{.data = {2}}}) {
    const LayoutTrial trial = four_stages(ScheduleKind::zero_bubble_h1, 1, sizes);
    SCOPED_TRACE(trial.mesh.text());
    for (int stage = 0; stage < 4; ++stage) {
      // The last rank of the stage.
      int rank = 0;
      for (int other = 0; other < trial.mesh.ranks(); ++other) {
        if (trial.mesh.stage(other) == stage) rank = other;
      }
      const std::string block = fmt::format("layers.{}.feed_forward.", stage);
      const std::set<std::string> said = found_non_finite(trial, {{rank, block + "down"}});
      ASSERT_EQ(said.size(), 1U) << ::testing::PrintToString(said);
      EXPECT_THAT(*said.begin(), AllOf(HasSubstr(fmt::format("on rank {}, {}", rank, block)),
                                       HasSubstr("made by linear"), HasSubstr("forward pass")));
    }
  }
}

/// The last stage computes its first micro-batches while the others compute later ones. With a
/// V, the first rank has the last layer too.
TEST(NonFiniteOfRanks, IsTheEarliestOfTheModelNotOfTheFirstStage) {
  const auto expect_named = [](const LayoutTrial& trial, const std::vector<PlantedNan>& planted,
                               const std::string& words) {
    const std::set<std::string> said = found_non_finite(trial, planted);
    ASSERT_EQ(said.size(), 1U) << ::testing::PrintToString(said);
    EXPECT_THAT(*said.begin(), HasSubstr(words));
  };
  expect_named(four_stages(ScheduleKind::one_forward_one_backward, 1, {}),
               {{3, "layers.3.attention.output"},
                {2, "layers.2.feed_forward.up"},
                {1, "layers.1.feed_forward.down"}},
               "on rank 1, layers.1.feed_forward.");
  const LayoutTrial down_and_up = four_stages(ScheduleKind::zero_bubble_v, 2, {});
  expect_named(down_and_up,
               {{0, "layers.7.attention.output"},
                {1, "layers.6.attention.output"},
                {3, "layers.4.feed_forward.down"}},
               "on rank 3, layers.4.feed_forward.");
  expect_named(down_and_up, {{0, "head.weight"}}, "on rank 0, ");
}

TEST(NonFiniteOfRanks, IsNoneWhereOnlyASumOverflows) {
  const auto none = ::testing::ElementsAre(HasSubstr("although every value is finite"));
  EXPECT_THAT(found_non_finite(Mesh({.data = {2}}), {}), none);
  EXPECT_THAT(found_non_finite(four_stages(ScheduleKind::zero_bubble_v, 2, {}), {}), none);
}

}  // namespace
}  // namespace tessera
