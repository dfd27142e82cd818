#include "comm/communicator.h"

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/mesh.h"
#include "comm/ranks_and_values.h"

namespace tessera {
namespace {

Tensor number(double value) {
  Tensor result(Shape{1}, DType::f64);
  set(result, 0, value);
  return result;
}

TEST(Communicator, SendsAndReceives) {
  const Tensor sent = random_tensor(Shape{100, 7}, DType::bf16, 3);
  const Tensor received(Shape{100, 7}, DType::bf16);
  run_group(3, [&](Communicator& group) {
    if (group.position() == 2) group.send("boundary", 0, sent);
    if (group.position() == 0) group.receive("boundary", 2, received);
  });
  EXPECT_EQ(bytes_of(received), bytes_of(sent));
}

/// If each sent first and received then, all would wait for each other.
TEST(Communicator, RanksThatSendToEachOtherDoNotWait) {
  for (int size = 1; size <= 5; ++size) {
    std::vector<std::vector<double>> results(static_cast<size_t>(size));
    run_group(size, [&](Communicator& group) {
      const int own = group.position();
      const int left = (own + size - 1) % size;
      for (int step = 0; step < 20; ++step) {
        const Tensor from_left = number(-1);
        const Message send{.peer = (own + 1) % size, .tensor = number(own * 100 + step)};
        const Message receive{.peer = left, .tensor = from_left};
        group.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
        results[static_cast<size_t>(own)].push_back(get(from_left, 0) - left * 100);
      }
    });
    std::vector<double> steps(20);
    std::iota(steps.begin(), steps.end(), 0);
    for (const std::vector<double>& result : results) EXPECT_EQ(result, steps);
  }
}

TEST(Communicator, ExchangesWithSeveralPeersAtOnce) {
  constexpr int kRanks = 4;
  run_group(kRanks, [&](Communicator& group) {
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == group.position()) continue;
      sends.push_back({peer, number(group.position() + 10 * peer)});
      receives.push_back({peer, number(0)});
    }
    group.exchange("all", sends, receives);
    for (const Message& message : receives) {
      EXPECT_EQ(get(message.tensor, 0), message.peer + 10 * group.position());
    }
  });
}

TEST(Communicator, ABarrierWaitsForAll) {
  std::atomic<int> came = 0;
  std::atomic<int> too_early = 0;
  run_group(6, [&](Communicator& group) {
    for (int turn = 1; turn <= 50; ++turn) {
      ++came;
      group.barrier("step");
      if (came != 6 * turn) ++too_early;
      group.barrier("next");
    }
  });
  EXPECT_EQ(too_early, 0);
}

/// Ranks of a 2 x 2 x 2 mesh, where each belongs to a group along each axis, in different orders.
TEST(Communicator, GroupsOfAMeshWorkAtOnce) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  const std::vector<Axis> axes{mesh.tensor(), mesh.context(), mesh.data()[0]};
  World world(mesh.ranks());
  run_ranks(world, [&](int rank) {
    std::vector<Communicator> groups;
    for (const Axis& axis : axes) {
      groups.push_back(world.group(rank, mesh.group(rank, std::span(&axis, 1))));
    }
    groups.push_back(world.group(rank, mesh.group(rank, std::span(axes).first(2))));
    for (int step = 0; step < 100; ++step) {
      const auto at = static_cast<size_t>(step) % groups.size();
      const Tensor value = number(rank + step);
      groups[at].all_reduce("sum", value, value);
      double expected = 0;
      for (const int other : groups[at].ranks()) expected += other + step;
      EXPECT_EQ(get(value, 0), expected) << "rank " << rank << ", step " << step;
    }
  });
}

/// Two threads of each rank, whose calls come in any order between the lanes.
TEST(Communicator, LanesDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  World world(kRanks);
  std::vector<double> sums(2 * kRanks);
  run_ranks(world, [&](int rank) {
    const auto run_lane = [&](const std::string& lane, int factor) {
      Communicator group = world.group(rank, first_ranks(kRanks), lane);
      double sum = 0;
      for (int step = 0; step < 200; ++step) {
        const Tensor value = number(factor * (rank + step));
        group.all_reduce(lane, value, value);
        sum += get(value, 0);
      }
      sums[static_cast<size_t>(2 * rank + (factor == 1 ? 0 : 1))] = sum;
    };
    // The lanes begin in another order on each rank.
    std::jthread other([&] { run_lane(rank == 1 ? "compute" : "network", rank == 1 ? 5 : 1); });
    run_lane(rank == 1 ? "network" : "compute", rank == 1 ? 1 : 5);
  });
  // Each of the steps adds 0 + 1 + 2 and three times the step.
  const double expected = 200 * 3 + 3 * (199 * 200 / 2);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sums[static_cast<size_t>(2 * rank)], expected);
    EXPECT_EQ(sums[static_cast<size_t>(2 * rank + 1)], 5 * expected);
  }
}

TEST(Communicator, CountsWhatItReceives) {
  run_group(4, [](Communicator& group) {
    const PieceLayout layout = even_pieces(16, 4);
    const Tensor whole = random_tensor(Shape{16}, DType::f32, 1);
    const Tensor other(Shape{16}, DType::f32);
    const Tensor part(Shape{4}, DType::f32);
    group.all_gather("a", layout, part, whole);
    group.all_gather("b", layout, part, whole);
    group.reduce_scatter("c", layout, whole, part);
    group.all_reduce("d", whole, whole);
    group.all_to_all("e", whole, other);
    const std::vector<int64_t> rows{1, 1, 1, 1};
    group.all_to_all_rows("f", whole.reshape(Shape{4, 4}), rows, other.reshape(Shape{4, 4}), rows);
    group.broadcast("g", 1, whole);
    if (group.position() == 0) group.send("h", 3, part);
    if (group.position() == 3) group.receive("h", 0, part);
    group.barrier("i");
    const auto bytes = [&](Collective collective) {
      return group.traffic(collective).received_bytes;
    };
    EXPECT_EQ(group.traffic(Collective::all_gather).calls, 2);
    EXPECT_EQ(bytes(Collective::all_gather), 2 * 64 * 3 / 4);
    EXPECT_EQ(bytes(Collective::reduce_scatter), 64 * 3 / 4);
    EXPECT_EQ(bytes(Collective::all_reduce), 2 * 64 * 3 / 4);
    EXPECT_EQ(bytes(Collective::all_to_all), 64 * 3 / 4);
    EXPECT_EQ(bytes(Collective::all_to_all_rows), 64 * 3 / 4);
    EXPECT_EQ(bytes(Collective::broadcast), group.position() == 1 ? 0 : 64);
    EXPECT_EQ(bytes(Collective::message), group.position() == 3 ? 16 : 0);
    EXPECT_EQ(bytes(Collective::barrier), 0);
    EXPECT_EQ(group.traffic(Collective::barrier).calls, 1);
  });
}

TEST(Communicator, RefusesOperandsThatDoNotFit) {
  run_group(1, [](Communicator& group) {
    const PieceLayout layout = even_pieces(4, 1);
    const Tensor memory(Shape{8}, DType::f32);
    const auto at = [&](int64_t begin, int64_t length) {
      return memory.slice(begin, begin + length);
    };
    EXPECT_THROW(group.all_gather("a", layout, at(0, 3), at(4, 4)), InternalError);
    EXPECT_THROW(group.all_gather("a", layout, at(0, 4), at(4, 3)), InternalError);
    EXPECT_THROW(group.all_gather("a", layout, at(1, 4), at(0, 4)), InternalError);
    EXPECT_THROW(group.all_gather("a", even_pieces(4, 2), at(0, 4), at(4, 4)), InternalError);
    EXPECT_THROW(group.reduce_scatter("a", layout, at(0, 4), at(1, 4)), InternalError);
    EXPECT_THROW(group.all_reduce("a", at(0, 4), at(1, 4)), InternalError);
    EXPECT_THROW(group.all_reduce("a", at(0, 4), at(4, 3)), InternalError);
    EXPECT_THROW(group.all_to_all("a", at(0, 4), at(0, 4)), InternalError);
    EXPECT_THROW(group.broadcast("a", 1, at(0, 4)), InternalError);
    EXPECT_THROW(group.send("a", 1, at(0, 4)), InternalError);
    const std::vector<int64_t> five{5};
    EXPECT_THROW(group.all_to_all_rows("a", at(0, 4), five, at(4, 4), five), InternalError);
    const Tensor half(Shape{4}, DType::bf16);
    EXPECT_THROW(group.all_gather("a", layout, half, at(0, 4)), InternalError);
    EXPECT_THROW(group.all_reduce("a", half, half, Reduction::maximum), InternalError);
    const Tensor bytes(Shape{4}, DType::u8);
    EXPECT_THROW(group.all_reduce("a", bytes, bytes), InternalError);
    group.all_gather("fits", layout, at(0, 4), at(4, 4));
  });
}

}  // namespace
}  // namespace tessera
