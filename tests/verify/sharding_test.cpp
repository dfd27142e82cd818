#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_batches.h"
#include "support/small_family.h"
#include "verify/layout_trials.h"
#include "verify/verify.h"

namespace tessera {
namespace {

/// Every valid triple of placements on a mesh: each part of the state over none of the axes that
/// may cut it, or the innermost one, or two, and so on; weights over no more than gradients, and
/// these over no more than the optimizer's states.
std::vector<ShardAxes> every_triple(const Mesh& mesh) {
  const int most = static_cast<int>(mesh.axes_of(MeshView::dense).size()) - 1;
  std::vector<ShardAxes> triples;
  for (int weights = 0; weights <= most; ++weights) {
    for (int gradients = weights; gradients <= most; ++gradients) {
      for (int optimizer = gradients; optimizer <= most; ++optimizer) {
        triples.push_back({weights, gradients, optimizer});
      }
    }
  }
  return triples;
}

std::string text_of(const ShardAxes& axes) {
  return fmt::format("weights {}, gradients {}, optimizer {}", axes.weights, axes.gradients,
                     axes.optimizer);
}

LayoutTrial trial_on(const MeshSizes& sizes, ModelConfig model) {
  LayoutTrial trial{.model = std::move(model), .mesh = Mesh(sizes)};
  trial.size = {.sequences = 8, .context = 16};
  return trial;
}

void expect_model_of_one_rank(const LayoutTrial& trial) {
  const TrialBatches batches{
      .whole = testing::random_batches(trial.size, trial.model.vocabulary_size, 2,
                                       trial.micro_batches, 7),
      .parts = {}};
  LayoutTrial one_rank = trial;
  one_rank.mesh = Mesh();
  one_rank.shard = {};
  expect_same_model(run_layout(one_rank, batches), run_layout(trial, batches));
}

TEST(Sharding, OfEveryTripleOfPlacementsTrainsTheModelOfOneRank) {
  for (const std::vector<int>& data : {std::vector{2, 2, 2}, std::vector{2, 4}}) {
    LayoutTrial trial = trial_on({.data = data}, laid_out_dense());
    for (const ShardAxes& axes : every_triple(trial.mesh)) {
      SCOPED_TRACE(fmt::format("{}: {}", trial.mesh.text(), text_of(axes)));
      trial.shard.axes = axes;
      expect_model_of_one_rank(trial);
    }
  }
}

}  // namespace
}  // namespace tessera
