#include "engine/random_lanes.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "comm/rank_groups.h"
#include "engine/executor.h"
#include "engine/random_lanes_run.h"
#include "ops/host_target.h"
#include "support/tested_devices.h"

namespace tessera {
namespace {

using testing::give;
using testing::RandomLanes;
using testing::results;

/// Calls body(groups) for each rank of a mesh, whose calls are delayed at random.
void run_delayed(World& world, const Mesh& mesh, uint64_t seed,
                 const std::function<void(RankGroups& groups)>& body) {
  run_ranks(world, [&](int rank) {
    RankGroups groups(mesh, rank,
                      testing::delayed_join(rank, seed,
                                            [&](std::span<const int> ranks, std::string_view lane) {
                                              return world.transport(rank, ranks, lane);
                                            }),
                      [&](std::string_view why) { world.end_work(rank, why); });
    body(groups);
  });
}

/// Returns the number of programs of a test: few, or as many as TESSERA_ROUNDS says.
int rounds(int few) {
  const char* const wanted = std::getenv("TESSERA_ROUNDS");
  return wanted == nullptr ? few : std::atoi(wanted);
}

TEST(RandomLanes, HaveTheBitsOfOneNodeAfterTheOtherWhateverIsDoneFirst) {
  const Mesh mesh({.tensor = 2});
  World world(mesh.ranks());
  std::atomic<int> beside = 0;  // programs in which something runs beside the compute lane
  const int programs = rounds(1000);
  run_delayed(world, mesh, 1, [&](RankGroups& groups) {
    Runtime runtime(host_target(1));
    runtime.join(groups);
    for (int i = 0; i < programs; ++i) {
      Program program(mesh, groups.rank());
      Builder builder(program);
      RandomLanes(builder, {.seed = static_cast<uint64_t>(i), .sums = 5}).write();
      Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
      testing::expect_bits_of_one_node_after_the_other(program, executor);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "program " << i;
      const std::vector<bool> steps = steps_beside(
          [&] {
            std::vector<Lane> lanes;
            for (const Node& node : program.nodes()) lanes.push_back(node.operation->lane());
            return lanes;
          }(),
          executor.plan().programs[0].joins[0]);
      if (std::ranges::find(steps, true) != steps.end()) ++beside;
    }
  });
  EXPECT_GT(beside, programs * mesh.ranks() / 2);
}

TEST(RandomLanes, HaveTheBitsOfTheProcessorOnDevices) {
  const Mesh mesh({.tensor = 2});
  World world(mesh.ranks());
  run_delayed(world, mesh, 2, [&](RankGroups& groups) {
    Runtime host(host_target(1));
    Runtime device = testing::make_runtime(host_target(1), testing::Emulation{.lanes = 32});
    RankGroups device_groups(
        mesh, groups.rank(), [&](std::span<const int> ranks, std::string_view lane) {
          return world.group(groups.rank(), ranks, fmt::format("{} of devices", lane));
        });
    device_groups.use_devices(*device.accelerator(), std::chrono::minutes(1));
    host.join(groups);
    device.join(device_groups);
    for (int i = 0; i < 40; ++i) {
      Program program(mesh, groups.rank());
      Builder builder(program);
      RandomLanes(builder, {.seed = static_cast<uint64_t>(i)}).write();
      const auto run = [&](Runtime& runtime) {
        Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
        return results(program, executor);
      };
      ASSERT_EQ(run(device), run(host)) << "program " << i;
    }
  });
}

/// Says whether programs of ranks come to their end, if a sum is taken when all of its ranks have
/// begun it. It follows the rules of Joins alone, a lane of a rank at a time.
class Rendezvous {
 public:
  void add(const Program& program) {
    Rank& rank = ranks_.emplace_back();
    std::vector<int> nodes = segment_nodes(program, Segment::whole);
    rank.joins = find_joins(program, nodes);
    for (const int node : nodes) {
      const Operation& operation = *program.nodes()[static_cast<size_t>(node)].operation;
      Step& step = rank.steps.emplace_back(Step{.lane = operation.lane()});
      if (operation.group_axes().empty()) continue;
      step.group = program.mesh().group(program.rank(), operation.group_axes()[0]);
    }
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        for (size_t s = 0; s < ranks_[r].steps.size(); ++s) moved = move(r, s) || moved;
      }
    }
    return std::ranges::all_of(
        ranks_, [](const Rank& rank) { return std::ranges::all_of(rank.steps, &Step::done); });
  }

 private:
  struct Step {
    Lane lane;
    std::vector<int> group = {};  // the ranks of a sum
    bool begun = false;
    bool done = false;
  };
  struct Rank {
    std::vector<Step> steps;
    Joins joins;
  };
  using Call = std::pair<std::vector<int>, Lane>;  // the ranks, and the lane

  /// Returns whether a step begins or ends now.
  bool move(size_t r, size_t s) {
    Step& step = ranks_[r].steps[s];
    if (step.done) return false;
    if (!step.begun) {
      if (!may_begin(ranks_[r], s)) return false;
      step.begun = true;
      if (!step.group.empty()) ++begun_[{step.group, step.lane}][static_cast<int>(r)];
      step.done = step.group.empty();
      return true;
    }
    std::map<int, int>& begun = begun_[{step.group, step.lane}];
    const int own = begun[static_cast<int>(r)];
    step.done = std::ranges::all_of(step.group, [&](int rank) { return begun[rank] >= own; });
    return step.done;
  }

  static bool may_begin(const Rank& rank, size_t s) {
    const Lane lane = rank.steps[s].lane;
    for (size_t before = 0; before < s; ++before) {
      const Step& other = rank.steps[before];
      if ((other.lane == lane || other.lane == Lane::compute) && !other.done) return false;
    }
    return std::ranges::all_of(rank.joins.awaited[s], [&](int awaited) {
      return awaited < 0 || rank.steps[static_cast<size_t>(awaited)].done;
    });
  }

  std::vector<Rank> ranks_;
  std::map<Call, std::map<int, int>> begun_;  // by rank: how many calls it has begun
};

/// Returns the error of programs whose ranks draw their own orders; empty if they end.
std::string error_of_run(const Mesh& mesh, uint64_t seed, std::chrono::milliseconds timeout) {
  World world(mesh.ranks(), timeout);
  try {
    run_mesh(world, mesh, [&](RankGroups& groups) {
      Program program(mesh, groups.rank());
      Builder builder(program);
      RandomLanes(builder, {.seed = seed, .own_order = true}).write();
      Runtime runtime(host_target(1));
      runtime.join(groups);
      Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
      executor.join_groups();
      give(program, executor, 0);
      executor.run(testing::kWholeProgram);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RandomLanes, OfRanksInOrdersOfTheirOwnEndUnlessTheyWaitForEachOther) {
  const std::vector<Mesh> meshes{Mesh({.tensor = 2}), Mesh({.tensor = 2, .data = {2}}),
                                 Mesh({.tensor = 3, .data = {2}}),
                                 Mesh({.tensor = 4, .data = {4}})};
  int ended = 0, stuck = 0;
  for (int i = 0; i < rounds(80); ++i) {
    const Mesh& mesh = meshes[static_cast<size_t>(i) % meshes.size()];
    const auto seed = static_cast<uint64_t>(i);
    Rendezvous rendezvous;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      Program program(mesh, rank);
      Builder builder(program);
      RandomLanes(builder, {.seed = seed, .own_order = true}).write();
      rendezvous.add(program);
    }
    if (rendezvous.ends()) {
      ++ended;
      EXPECT_EQ(error_of_run(mesh, seed, std::chrono::minutes(1)), "") << "program " << i;
    } else if (++stuck <= 5) {
      EXPECT_NE(error_of_run(mesh, seed, std::chrono::milliseconds(100)), "") << "program " << i;
    }
  }
  EXPECT_GT(ended, 10);
  EXPECT_GT(stuck, 5);
}

}  // namespace
}  // namespace tessera
