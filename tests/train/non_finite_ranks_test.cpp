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

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A number of a parameter's weights that is not finite, in one rank's memory alone.
struct PlantedNan {
  int rank;
  std::string parameter;
};

/// What the ranks of a mesh say of a step, after NaNs were planted. Each rank has two micro-batches
/// of its own.
std::set<std::string> found_non_finite(const Mesh& mesh, const std::vector<PlantedNan>& planted) {
  ModelConfig model;
  model.layers = 2;
  model.hidden_size = 16;
  model.heads = 4;
  model.kv_heads = 4;
  model.feed_forward_size = 24;
  model.vocabulary_size = 32;
  const ProgramSize size{.sequences = 4, .context = 16};
  const auto batches = testing::random_batches(size, model.vocabulary_size, 1, 2, 7).front();
  std::set<std::string> said;
  std::mutex mutex;
  World world(mesh.ranks(), std::chrono::seconds(60));
  run_mesh(world, mesh, [&](RankGroups& groups) {
    Runtime runtime(host_target(1));
    runtime.join(groups);
    const StepPrograms programs = step_programs(
        write_training(model, DType::f64, size, {}, {mesh, groups.rank()}), OptimizerConfig{});
    Executor executor(programs.list(), programs.actions(), runtime);
    const ParameterStore store = store_of(programs, executor);
    store.initialize(7, 1);
    for (const ParameterSpec& spec : store.parameters()) {
      for (const auto& [rank, parameter] : planted) {
        if (rank != groups.rank() || parameter != spec.name) continue;
        store.memory(spec.name, Kept::weight).data<double>()[1] = NAN;
      }
    }
    TrainingStep step(programs, executor, store);
    const std::string text = step.find_non_finite(batches, RankControl(groups));
    const std::scoped_lock lock(mutex);
    said.insert(text);
  });
  return said;
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

TEST(NonFiniteOfRanks, IsNoneWhereOnlyASumOverflows) {
  EXPECT_THAT(found_non_finite(Mesh({.data = {2}}), {}),
              ::testing::ElementsAre(HasSubstr("although every value is finite")));
}

}  // namespace
}  // namespace tessera
