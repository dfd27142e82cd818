#include "comm/rank_groups.h"

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "comm/rank_device.h"
#include "comm/ranks_and_values.h"

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

/// Ranks without devices need no connection.
TEST(RankGroups, PostMessagesBetweenTheDevicesOfRanks) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  for (const bool on_devices : {true, false}) {
    World world(4);
    std::vector<std::string> received(4);
    run_mesh(world, mesh, [&](RankGroups& groups) {
      RankDevice device(32);
      if (on_devices) groups.use_devices(device.accelerator(), std::chrono::seconds(60));
      const Axis axis[] = {mesh.tensor()};
      Communicator& row = groups.over(axis, "network");
      const int peer = 1 - row.position();
      groups.connect_posts(axis, "network", std::span(&peer, 1));
      const Tensor own = random_tensor({7}, DType::f32, groups.rank());
      const Tensor sent = on_devices ? device.copy(own) : own;
      const Tensor arrived =
          on_devices ? device.copy(Tensor({7}, DType::f32)) : Tensor({7}, DType::f32);
      const DeviceCall call = on_devices ? device.call(0) : DeviceCall{};
      PostedMessage out = row.post_send("swap", peer, sent, call);
      PostedMessage in = row.post_receive("swap", peer, arrived, call);
      row.wait(out, call);
      row.wait(in, call);
      received[static_cast<size_t>(groups.rank())] = bytes_of(on_host(arrived));
      device.stream().synchronize();
    });
    for (const int rank : {0, 1, 2, 3}) {
      EXPECT_EQ(received[static_cast<size_t>(rank ^ 1)],
                bytes_of(random_tensor({7}, DType::f32, rank)));
    }
  }
}

}  // namespace
}  // namespace tessera
