#include "state/shard_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The ranks of each part of the state, or of the part for experts.
std::vector<int64_t> ranks_of(const ShardAxes& axes, const Mesh& mesh,
                              MeshView view = MeshView::dense) {
  std::vector<int64_t> ranks;
  for (const int part : {axes.weights, axes.gradients, axes.optimizer}) {
    ranks.push_back(cut_ranks(mesh, part, view));
  }
  return ranks;
}

/// The axes of one part, placed over some ranks of a mesh.
int axes(const ShardPlacement& placement, const Mesh& mesh) {
  return shard_axes({.optimizer = placement}, mesh).optimizer;
}

std::string refusal(const ShardConfig& config, const Mesh& mesh) {
  return error_of([&] { shard_axes(config, mesh); });
}

/// Pairs, nodes of four ranks, and two nodes.
const MeshSizes kPairs{.data = {2, 2, 2}};

TEST(ShardPlacements, AreTheAxesOfTheirRanks) {
  const Mesh mesh(kPairs);
  EXPECT_EQ(shard_axes({}, mesh), ShardAxes{});
  EXPECT_EQ(axes({"pair"}, mesh), 2) << "context, which has one rank, and data.0";
  EXPECT_EQ(axes({"node"}, mesh), 3);
  EXPECT_EQ(axes({"all"}, mesh), 4);
  EXPECT_EQ(axes({.ranks = 1}, mesh), 0);
  EXPECT_EQ(axes({.ranks = 2}, mesh), 2);
  EXPECT_EQ(axes({.ranks = 4}, mesh), 3);
  EXPECT_EQ(axes({.ranks = 8}, mesh), 4);
}

/// ZeRO-topo, section V: weights over a pair, gradients over a node, optimizer states over all.
TEST(ShardPlacements, OfThePartsAreNested) {
  const Mesh mesh(kPairs);
  const ShardAxes topo = shard_axes({{"pair"}, {"node"}, {"all"}}, mesh);
  EXPECT_EQ(topo, (ShardAxes{2, 3, 4}));
  EXPECT_THAT(ranks_of(topo, mesh), ElementsAre(2, 4, 8));
  EXPECT_THAT(ranks_of(shard_axes({{"node"}, {"node"}, {"node"}}, mesh), mesh),
              ElementsAre(4, 4, 4));
  EXPECT_THAT(ranks_of(shard_axes({{"none"}, {"none"}, {"all"}}, mesh), mesh),
              ElementsAre(1, 1, 8));
  EXPECT_THAT(ranks_of(shard_axes({{.ranks = 2}, {"pair"}, {.ranks = 4}}, mesh), mesh),
              ElementsAre(2, 2, 4));
}

/// Ranks that share a model's matrices or its layers hold other weights, and count within a level.
TEST(ShardPlacements, CountTensorRanksAndStagesWithinALevel) {
  const std::vector<MeshLevel> levels{{"pair", 2}, {"node", 8}};
  const Mesh tensor({.tensor = 2, .data = {1, 4, 2}, .levels = levels});
  EXPECT_EQ(cut_ranks(tensor, axes({"pair"}, tensor), MeshView::dense), 1);
  EXPECT_EQ(axes({"node"}, tensor), 3);
  EXPECT_EQ(axes({.ranks = 4}, tensor), 3) << "the same group, by its ranks that hold the weights";
  const Mesh crossing({.tensor = 4, .data = {1, 2, 2}, .levels = levels});
  EXPECT_EQ(axes({"pair"}, crossing), 0) << "a pair is a part of a model";
  EXPECT_EQ(axes({"node"}, crossing), 3);
  const Mesh stages({.pipeline = 4, .data = {1, 2, 2}, .levels = levels});
  EXPECT_EQ(axes({"pair"}, stages), 1) << "context, which has one rank";
  EXPECT_THAT(ranks_of(shard_axes({{"node"}, {"node"}, {"all"}}, stages), stages),
              ElementsAre(2, 2, 4));
}

TEST(ShardPlacements, BeginWithTheContextAxis) {
  const Mesh mesh({.context = 2, .data = {1, 2, 2}, .levels = {{"pair", 2}, {"node", 4}}});
  EXPECT_EQ(axes({"pair"}, mesh), 2) << "context, and a level of data of one rank";
  EXPECT_EQ(axes({.ranks = 2}, mesh), 2);
  EXPECT_THAT(cut_axes(mesh, axes({"node"}, mesh), MeshView::dense),
              ElementsAre(mesh.context(), mesh.data()[0], mesh.data()[1]));
  // Half of a context is no whole axis.
  const Mesh half({.context = 4, .data = {1, 2}, .levels = {{"node", 2}}});
  EXPECT_EQ(axes({"node"}, half), 0);
  EXPECT_THAT(refusal({.optimizer = {.ranks = 2}}, half),
              HasSubstr("shard.optimizer (2): the mesh (4 context x 2 data.1) has no group of 2"));
}

TEST(ShardPlacements, OfExpertsAreWithinTheSameGroup) {
  const Mesh mesh({.data = {2, 2, 2}, .expert = 2});
  const ShardAxes axes = shard_axes({{"pair"}, {"node"}, {"all"}}, mesh);
  EXPECT_THAT(ranks_of(axes, mesh, MeshView::expert), ElementsAre(1, 2, 4));
  EXPECT_THAT(cut_axes(mesh, axes.optimizer, MeshView::expert),
              ElementsAre(mesh.expert_data()[0], mesh.expert_data()[1], mesh.expert_data()[2]));
  EXPECT_THAT(cut_axes(mesh, 1, MeshView::expert), IsEmpty());
  // All ranks share the matrices of one model, and four of them have the same experts.
  const Mesh tensor({.tensor = 8, .expert = 2});
  EXPECT_THAT(ranks_of(shard_axes({{"none"}, {"none"}, {"all"}}, tensor), tensor, MeshView::expert),
              ElementsAre(1, 1, 4));
}

TEST(ShardPlacements, OfOneCopyOfTheWeightsCutNothing) {
  EXPECT_EQ(axes({.ranks = 4}, Mesh()), 0);
  EXPECT_EQ(axes({.ranks = 4}, Mesh({.tensor = 4})), 0);
  EXPECT_EQ(cut_ranks(Mesh(), axes({"all"}, Mesh()), MeshView::dense), 1);
}

TEST(ShardPlacements, ThatBreakTheDependencyRuleAreRefused) {
  const Mesh mesh(kPairs);
  EXPECT_THAT(
      refusal({.weights = {"node"}, .optimizer = {"all"}}, mesh),
      AllOf(HasSubstr("shard.weights (\"node\", 4 ranks) is cut over more ranks than "
                      "shard.gradients (\"none\", 1 rank)"),
            HasSubstr("the dependency rule (ZeRO-topo, section V)"),
            HasSubstr("set shard.gradients to \"node\" or to more ranks, or shard.weights to "
                      "\"none\" or to fewer")));
  EXPECT_THAT(refusal({{"pair"}, {"all"}, {.ranks = 4}}, mesh),
              HasSubstr("shard.gradients (\"all\", 8 ranks) is cut over more ranks than "
                        "shard.optimizer (4, 4 ranks)"));
  EXPECT_THAT(refusal({.weights = {"all"}, .gradients = {"pair"}, .optimizer = {"all"}}, mesh),
              HasSubstr("shard.weights (\"all\", 8 ranks)"));
  const Mesh experts({.tensor = 4, .expert = 2});
  EXPECT_THAT(refusal({.gradients = {"all"}}, experts),
              HasSubstr("shard.gradients (\"all\", 2 ranks) is cut over more ranks of experts than "
                        "shard.optimizer (\"none\", 1 rank)"));
}

/// Every triple of placements is taken, or refused by the rule, as its ranks say.
TEST(ShardPlacements, OfAllTriplesAreTakenWhereTheirRanksAreNested) {
  const Mesh mesh(kPairs);
  const std::vector<std::pair<ShardPlacement, int64_t>> all{{{"none"}, 1},     {{"pair"}, 2},
                                                            {{"node"}, 4},     {{"all"}, 8},
                                                            {{.ranks = 1}, 1}, {{.ranks = 4}, 4}};
  int taken = 0;
  for (const auto& [weights, w] : all) {
    for (const auto& [gradients, g] : all) {
      for (const auto& [optimizer, o] : all) {
        const ShardConfig config{weights, gradients, optimizer};
        if (w <= g && g <= o) {
          EXPECT_THAT(ranks_of(shard_axes(config, mesh), mesh), ElementsAre(w, g, o));
          ++taken;
        } else {
          EXPECT_THAT(refusal(config, mesh), HasSubstr("the dependency rule"));
        }
      }
    }
  }
  EXPECT_EQ(taken, 72);
}

TEST(ShardPlacements, OfUnknownLevelsAndGroupsAreRefused) {
  const Mesh mesh(kPairs);
  EXPECT_THAT(
      refusal({.weights = {"package"}}, mesh),
      AllOf(HasSubstr("shard.weights is \"package\", and the levels of this run's network are "
                      "\"pair\", \"node\", \"all\""),
            HasSubstr("set parallel.levels")));
  EXPECT_THAT(
      refusal({.optimizer = {.ranks = 3}}, mesh),
      HasSubstr("shard.optimizer (3): the mesh (2 data.0 x 2 data.1 x 2 data.2) has no group "
                "of 3 ranks"));
}

}  // namespace
}  // namespace tessera
