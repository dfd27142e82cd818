#include "comm/rank_groups.h"

#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/world.h"

namespace tessera {
namespace {

TEST(RankGroups, AreThoseThatDifferAlongTheAxesAlone) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  World world(4);
  std::vector<std::vector<int>> tensor(4), both(4);
  std::vector<double> sums(4);
  run_ranks(world, [&](int rank) {
    RankGroups groups(mesh, rank, [&](std::span<const int> ranks, std::string_view lane) {
      return world.group(rank, ranks, lane);
    });
    const Axis inner[] = {mesh.tensor()};
    const Axis all[] = {mesh.tensor(), mesh.data()[0]};
    const auto place = static_cast<size_t>(rank);
    Communicator& row = groups.over(inner, "network");
    EXPECT_EQ(&row, &groups.over(inner, "network"));
    EXPECT_NE(&row, &groups.over(inner, "compute"));
    tensor[place] = {row.ranks().begin(), row.ranks().end()};
    const Communicator& stage = groups.over(all, "network");
    both[place] = {stage.ranks().begin(), stage.ranks().end()};
    EXPECT_EQ(&stage, &groups.world("network"));
    const Tensor value({1}, DType::f64);
    *value.data<double>() = rank + 1;
    row.all_reduce("sum", value, value);
    sums[place] = *value.data<double>();
  });
  EXPECT_EQ(tensor, (std::vector<std::vector<int>>{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  EXPECT_EQ(both, (std::vector<std::vector<int>>(4, {0, 1, 2, 3})));
  EXPECT_EQ(sums, (std::vector<double>{3, 3, 7, 7}));
}

}  // namespace
}  // namespace tessera
