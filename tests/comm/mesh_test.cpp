#include "comm/mesh.h"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> group(const Mesh& mesh, int rank, Axis axis) {
  return mesh.group(rank, std::span(&axis, 1));
}

TEST(Mesh, OfOneRankHasEveryAxis) {
  const Mesh mesh;
  EXPECT_EQ(mesh.ranks(), 1);
  std::set<std::string> names;
  for (const AxisInfo& axis : mesh.axes()) {
    EXPECT_EQ(axis.size, 1);
    names.insert(axis.name);
  }
  EXPECT_THAT(names, ElementsAre("context", "data", "expert", "expert_data", "pipeline", "tensor"));
  EXPECT_EQ(mesh.text(), "one rank");
}

/// Llama 3, section 5.2: tensor innermost, then context, pipeline and data.
TEST(Mesh, NeighboursAreOfTheAxesThatCommunicateMost) {
  const Mesh mesh({.tensor = 2, .context = 3, .pipeline = 2, .data = {2}, .expert = 4});
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_THAT(group(mesh, 0, mesh.tensor()), ElementsAre(0, 1));
  EXPECT_THAT(group(mesh, 1, mesh.context()), ElementsAre(1, 3, 5));
  EXPECT_THAT(group(mesh, 0, mesh.pipeline()), ElementsAre(0, 6));
  EXPECT_THAT(group(mesh, 8, mesh.data()[0]), ElementsAre(8, 20));
  // The ranks of stage 0 are 0 to 5 and 12 to 17; experts fold them by four.
  EXPECT_THAT(group(mesh, 0, mesh.expert()), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(group(mesh, 4, mesh.expert()), ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(group(mesh, 13, mesh.expert_data()[0]), ElementsAre(3, 13, 17));
  EXPECT_EQ(mesh.text(), "2 tensor x 3 context x 2 pipeline x 2 data, 4 expert");
}

TEST(Mesh, LevelsOfDataAreAxes) {
  const Mesh mesh({.tensor = 2, .data = {2, 4}});
  ASSERT_EQ(mesh.data().size(), 2U);
  EXPECT_EQ(mesh.name(mesh.data()[0]), "data.0");
  EXPECT_EQ(mesh.name(mesh.data()[1]), "data.1");
  EXPECT_THAT(group(mesh, 1, mesh.data()[0]), ElementsAre(1, 3));
  EXPECT_THAT(group(mesh, 1, mesh.data()[1]), ElementsAre(1, 5, 9, 13));
  EXPECT_THAT(mesh.group(1, mesh.data()), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  EXPECT_EQ(mesh.text(), "2 tensor x 2 data.0 x 4 data.1");
}

/// Where the experts' ranks fill a node or more, all ranks that hold the same experts are on other
/// nodes.
TEST(Mesh, LevelsOfExpertDataLieWithinThoseOfData) {
  const auto sizes = [](const Mesh& mesh) {
    std::vector<int> result;
    for (const Axis axis : mesh.expert_data()) result.push_back(mesh.size(axis));
    return result;
  };
  const Mesh within({.tensor = 2, .data = {4, 3}, .expert = 2});
  EXPECT_THAT(sizes(within), ElementsAre(4, 3));
  EXPECT_EQ(within.name(within.expert_data()[1]), "expert_data.1");
  EXPECT_THAT(group(within, 9, within.expert_data()[0]), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(group(within, 9, within.expert_data()[1]), ElementsAre(1, 9, 17));
  const Mesh filled({.tensor = 2, .data = {4, 3}, .expert = 8});
  EXPECT_THAT(sizes(filled), ElementsAre(1, 3));
  const Mesh larger({.data = {2, 4}, .expert = 4});
  EXPECT_THAT(sizes(larger), ElementsAre(1, 2));
  const Mesh across({.data = {6, 2}, .expert = 4});
  EXPECT_THAT(sizes(across), ElementsAre(1, 3));
}

TEST(Mesh, GroupsTheAxesOfASumByLevel) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2, 3}, .expert = 4});
  const Axis t = mesh.tensor(), c = mesh.context(), node = mesh.data()[0], nodes = mesh.data()[1];
  EXPECT_THAT(mesh.axes_by_level(mesh.axes_of(MeshView::dense)),
              ElementsAre(std::vector{t, c, node}, std::vector{nodes}));
  EXPECT_THAT(mesh.axes_by_level(std::vector{t}), ElementsAre(std::vector{t}));
  EXPECT_THAT(mesh.axes_by_level(std::vector{nodes}), ElementsAre(std::vector{nodes}));
  EXPECT_THAT(mesh.axes_by_level(mesh.expert_data()),
              ElementsAre(std::vector{mesh.expert_data()[0]}, std::vector{mesh.expert_data()[1]}));
  const Mesh flat({.tensor = 2, .data = {6}});
  EXPECT_THAT(flat.axes_by_level(flat.axes_of(MeshView::dense)),
              ElementsAre(std::vector{flat.tensor(), flat.data()[0]}));
}

std::vector<std::string> names_within(const Mesh& mesh, const char* level,
                                      MeshView view = MeshView::dense) {
  const MeshLevel* found = mesh.find_level(level);
  EXPECT_NE(found, nullptr) << level;
  std::vector<std::string> names;
  for (const Axis axis : mesh.axes_within(*found, view)) names.push_back(mesh.name(axis));
  return names;
}

TEST(Mesh, LevelsOfTheNetworkFollowFromThoseOfData) {
  using Levels = std::vector<MeshLevel>;
  const auto levels = [](const MeshSizes& sizes) {
    const Mesh mesh(sizes);
    return Levels(mesh.levels().begin(), mesh.levels().end());
  };
  EXPECT_EQ(levels({}), (Levels{{"all", 1}}));
  EXPECT_EQ(levels({.tensor = 2, .data = {4}}), (Levels{{"all", 8}}));
  EXPECT_EQ(levels({.tensor = 2, .data = {4, 3}}), (Levels{{"node", 8}, {"all", 24}}));
  EXPECT_EQ(levels({.data = {2, 2, 2, 3}}),
            (Levels{{"pair", 2}, {"group.4", 4}, {"node", 8}, {"all", 24}}));
  EXPECT_EQ(Mesh({.data = {2, 3}}).find_level("package"), nullptr);
  EXPECT_THROW(Mesh({.data = {4, 2}, .levels = {{"node", 2}}}), InternalError);
  EXPECT_THROW(Mesh({.tensor = 4, .data = {2}, .levels = {{"node", 3}}}), InternalError);
}

TEST(Mesh, KnowsTheAxesWithinALevelOfTheNetwork) {
  const std::vector<MeshLevel> levels{{"pair", 2}, {"numa", 8}, {"node", 8}};
  const Mesh data({.data = {2, 4, 2}, .expert = 4, .levels = levels});
  EXPECT_THAT(names_within(data, "pair"), ElementsAre("tensor", "context", "pipeline", "data.0"));
  EXPECT_THAT(names_within(data, "pair", MeshView::expert), ElementsAre());
  EXPECT_THAT(names_within(data, "numa"),
              ElementsAre("tensor", "context", "pipeline", "data.0", "data.1"));
  EXPECT_EQ(names_within(data, "numa"), names_within(data, "node"));
  EXPECT_THAT(names_within(data, "node", MeshView::expert),
              ElementsAre("expert", "expert_data.0", "expert_data.1"));
  EXPECT_EQ(names_within(data, "all").size(), 6U);
  // A pair is half of a model's matrices. The level of data that stands for it has one rank.
  const Mesh tensor({.tensor = 4, .data = {1, 2, 2}, .levels = levels});
  EXPECT_THAT(names_within(tensor, "pair"), ElementsAre());
  EXPECT_THAT(names_within(tensor, "node"),
              ElementsAre("tensor", "context", "pipeline", "data.0", "data.1"));
  // A pair is a stage, a node four of them.
  const Mesh stages({.tensor = 2, .pipeline = 8, .data = {1, 1, 2}, .expert = 2, .levels = levels});
  EXPECT_THAT(names_within(stages, "pair"), ElementsAre("tensor", "context"));
  EXPECT_THAT(names_within(stages, "node"), ElementsAre("tensor", "context"));
  EXPECT_THAT(names_within(stages, "node", MeshView::expert),
              ElementsAre("expert", "expert_data.0", "expert_data.1"));
  // Ranks 2 and 3, which share matrices, are in two groups of three ranks.
  const Mesh crossed({.tensor = 2, .context = 3, .data = {1, 2}, .levels = {{"node", 3}}});
  EXPECT_THAT(names_within(crossed, "node"), ElementsAre());
}

TEST(Mesh, NamesTheNumbersThatDoNotDivide) {
  EXPECT_THAT(error_of([] { Mesh({.tensor = 2, .data = {3}, .expert = 4}); }),
              AllOf(HasSubstr("parallel.expert = 4"), HasSubstr("6 ranks of a pipeline stage"),
                    HasSubstr("tensor 2"), HasSubstr("data 3")));
  EXPECT_THAT(error_of([] { Mesh({.context = 0}); }), HasSubstr("parallel.context = 0"));
  EXPECT_THAT(error_of([] { Mesh({.data = {2, -1}}); }), HasSubstr("= -1"));
  EXPECT_THAT(error_of([] { Mesh({.data = {}}); }), HasSubstr("no level"));
  EXPECT_THAT(error_of([] { Mesh({.tensor = 1 << 30, .data = {1 << 30}}); }),
              HasSubstr("more than"));
  // A product of 2^64, which is 0 to a number of 64 bits.
  for (const std::vector<int>& data : {std::vector{1 << 4}, std::vector{1 << 2, 1 << 2}}) {
    EXPECT_THAT(error_of([&] { Mesh({.tensor = 1 << 30, .context = 1 << 30, .data = data}); }),
                AllOf(HasSubstr("tensor 1073741824 x context 1073741824 x pipeline 1 x data"),
                      HasSubstr("more than 1048576 ranks")));
  }
  EXPECT_EQ(Mesh({.tensor = 1 << 10, .data = {1 << 5, 1 << 5}}).ranks(), 1 << 20);
  EXPECT_THROW(Mesh().coordinate(1, Axis{0}), InternalError);
  EXPECT_THROW(Mesh().info(Axis{17}), InternalError);
}

MeshSizes any_sizes() {
  MeshSizes sizes{.tensor = *rc::gen::inRange(1, 4),
                  .context = *rc::gen::inRange(1, 3),
                  .pipeline = *rc::gen::inRange(1, 3),
                  .data = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 3),
                                                                rc::gen::inRange(1, 4))};
  int stage = sizes.tensor * sizes.context;
  for (const int level : sizes.data) stage *= level;
  std::vector<int> divisors;
  for (int e = 1; e <= stage; ++e) {
    if (stage % e == 0) divisors.push_back(e);
  }
  sizes.expert = *rc::gen::elementOf(divisors);
  return sizes;
}

/// Both views arrange the same ranks: the positions along a view's axes and the pipeline name every
/// rank once, and the ranks of a stage are the same in both.
RC_GTEST_PROP(Mesh, PositionsNameEveryRankOnce, ()) {
  const Mesh mesh(any_sizes());
  for (const MeshView view : {MeshView::dense, MeshView::expert}) {
    std::set<std::vector<int>> positions;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<int> position{mesh.coordinate(rank, mesh.pipeline())};
      for (const Axis axis : mesh.axes_of(view)) {
        position.push_back(mesh.coordinate(rank, axis));
        RC_ASSERT(position.back() < mesh.size(axis));
      }
      positions.insert(position);
    }
    RC_ASSERT(static_cast<int>(positions.size()) == mesh.ranks());
  }
}

RC_GTEST_PROP(Mesh, GroupsOfAnAxisPartTheRanks, ()) {
  const Mesh mesh(any_sizes());
  const int rank = *rc::gen::inRange(0, mesh.ranks());
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    const Axis axis{static_cast<int>(i)};
    const std::vector<int> members = group(mesh, rank, axis);
    RC_ASSERT(static_cast<int>(members.size()) == mesh.size(axis));
    for (size_t position = 0; position < members.size(); ++position) {
      RC_ASSERT(mesh.coordinate(members[position], axis) == static_cast<int>(position));
      RC_ASSERT(group(mesh, members[position], axis) == members);
    }
  }
}

/// Ranks that differ along the axes within a level only are in one group of it. Along the next axis
/// some are not.
RC_GTEST_PROP(Mesh, AxesWithinALevelStayInItsGroups, ()) {
  const Mesh mesh(any_sizes());
  const MeshLevel level =
      *rc::gen::elementOf(std::vector<MeshLevel>(mesh.levels().begin(), mesh.levels().end()));
  const auto stays = [&](const std::vector<Axis>& axes) {
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      for (const int peer : mesh.group(rank, axes)) {
        if (peer / level.ranks != rank / level.ranks) return false;
      }
    }
    return true;
  };
  std::vector<Axis> dense = mesh.axes_within(level, MeshView::dense);
  RC_ASSERT(stays(dense));
  const std::vector<Axis> experts = mesh.axes_within(level, MeshView::expert);
  RC_ASSERT(stays(experts));
  for (const Axis next : mesh.axes_of(MeshView::dense)) {
    if (std::ranges::find(dense, next) != dense.end()) continue;
    dense.push_back(next);
    RC_ASSERT(!stays(dense));
    return;
  }
}

RC_GTEST_PROP(Mesh, AViewIsTheRanksOfAStage, ()) {
  const Mesh mesh(any_sizes());
  const int rank = *rc::gen::inRange(0, mesh.ranks());
  auto dense = mesh.group(rank, mesh.axes_of(MeshView::dense));
  auto expert = mesh.group(rank, mesh.axes_of(MeshView::expert));
  RC_ASSERT(dense == expert);  // both fold the same order
  for (const int member : dense) {
    RC_ASSERT(mesh.coordinate(member, mesh.pipeline()) == mesh.coordinate(rank, mesh.pipeline()));
  }
}

}  // namespace
}  // namespace tessera
