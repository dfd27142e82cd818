#include "engine/random_lanes.h"

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "comm/rank_groups.h"
#include "engine/executor.h"
#include "engine/overlap.h"
#include "engine/random_lanes_run.h"
#include "engine/rendezvous.h"
#include "ops/host_target.h"
#include "support/memory_replay.h"
#include "support/rounds.h"
#include "support/tested_devices.h"

namespace tessera {
namespace {

using testing::append;
using testing::give;
using testing::RandomLanes;
using testing::results;
using testing::rounds;
using testing::run_delayed;

/// Returns the outputs of each program after its last part, and the states at the end, of three
/// runs of a list. What a run leaves at work goes on beside the next one. Inputs are written where
/// their hold begins, or else before the first part.
std::vector<float> results_of_list(std::span<const Program* const> programs,
                                   std::span<const ListEntry> list, Executor& executor) {
  std::vector<float> all;
  for (int round = 0; round < 3; ++round) {
    std::set<int> held;  // the programs whose inputs are there
    for (const ListEntry& entry : list) {
      if (const auto* const hold = std::get_if<Hold>(&entry)) {
        executor.hold(*hold);
        if (!held.insert(hold->program).second) continue;
        give(*programs[static_cast<size_t>(hold->program)], executor, round, hold->program);
        continue;
      }
      const Action& action = std::get<Action>(entry);
      const Program& program = *programs[static_cast<size_t>(action.program)];
      if (action.steps.begin == 0 && !held.contains(action.program)) {
        give(program, executor, round, action.program);
      }
      executor.run(action);
      const auto count = std::ssize(segment_nodes(program, Segment::whole));
      if (action.steps.end == count) {
        append(program, executor, ValueKind::computed, all, action.program);
      }
    }
  }
  executor.synchronize();
  append(*programs[0], executor, ValueKind::state, all);
  return all;
}

/// A rank's runtimes on the processor and on an emulated device. Each has communicators of its own.
/// The calls of both are delayed at random.
struct BothTargets {
  BothTargets(World& world, const Mesh& mesh, RankGroups& groups, uint64_t seed)
      : device_groups(
            mesh, groups.rank(),
            testing::delayed_join(
                groups.rank(), seed,
                [&world, rank = groups.rank()](std::span<const int> ranks, std::string_view lane) {
                  return world.transport(rank, ranks, fmt::format("{} of devices", lane));
                })) {
    device_groups.use_devices(*device.accelerator(), std::chrono::minutes(1));
    host.join(groups);
    device.join(device_groups);
  }

  Runtime host{host_target(1)};
  Runtime device = testing::make_runtime(host_target(1), testing::Emulation{.lanes = 32});
  RankGroups device_groups;
};

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

/// Returns an order that overlap finds if nodes take random times.
std::vector<int> random_order(const Program& program, uint64_t seed) {
  std::vector<double> seconds;
  std::mt19937_64 draw(seed);
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    seconds.push_back(static_cast<double>(draw() % 100));
  }
  const int64_t memory = draw() % 2 == 0 ? 0 : 1 << 20;
  return overlapped_order(program, std::array{Segment::whole},
                          {.seconds =
                               [&](const Program& of, const Node& node) {
                                 return seconds[static_cast<size_t>(&node - of.nodes().data())];
                               },
                           .memory = memory});
}

TEST(RandomLanes, HaveTheSameBitsInTheOrderOfOverlap) {
  const Mesh mesh({.tensor = 2});
  World world(mesh.ranks());
  std::atomic<int> moved = 0;
  const int programs = rounds(200);
  run_delayed(world, mesh, 3, [&](RankGroups& groups) {
    Runtime runtime(host_target(1));
    runtime.join(groups);
    for (int i = 0; i < programs; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      Program program(mesh, groups.rank());
      Builder builder(program);
      RandomLanes(builder, {.seed = seed}).write();
      const auto run = [&] {
        Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
        return results(program, executor);
      };
      const std::vector<float> written = run();
      const std::vector<int> order = random_order(program, seed);
      if (order.empty()) continue;
      ++moved;
      program.reorder(order);
      ASSERT_EQ(run(), written) << "program " << i;
    }
  });
  EXPECT_GT(moved, programs);  // of 2 · programs
}

/// Returns a list that runs two programs in parts, one between those of the other.
std::vector<Action> actions_in_parts(std::span<const Program* const> programs, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::array<int, 2> next{}, count{};
  for (size_t i = 0; i < 2; ++i) {
    count[i] = static_cast<int>(segment_nodes(*programs[i], Segment::whole).size());
  }
  std::vector<Action> actions;
  while (next[0] < count[0] || next[1] < count[1]) {
    const size_t i = next[0] == count[0] ? 1 : next[1] == count[1] ? 0 : draw() % 2;
    const int end = std::min(count[i], next[i] + 1 + static_cast<int>(draw() % 4));
    actions.push_back({.program = static_cast<int>(i), .steps = {.begin = next[i], .end = end}});
    next[i] = end;
  }
  return actions;
}

/// Returns these actions, with holds of the inputs of every other pair of programs: from the
/// beginning of the list to the program's first part, as of a message that is received meanwhile.
std::vector<ListEntry> list_of(std::span<const Program* const> programs,
                               std::span<const Action> actions, uint64_t seed) {
  if (seed % 2 == 0) return {actions.begin(), actions.end()};
  std::vector<Hold> holds;
  for (int p = 0; p < std::ssize(programs); ++p) {
    Hold& hold = holds.emplace_back(Hold{.program = p, .values = {}});
    const auto& values = programs[static_cast<size_t>(p)]->values();
    for (int id = 0; id < std::ssize(values); ++id) {
      if (values[static_cast<size_t>(id)].kind == ValueKind::input) hold.values.push_back({id});
    }
  }
  std::vector<ListEntry> list(holds.begin(), holds.end());
  for (const Action& action : actions) {
    if (action.steps.begin == 0) {
      Hold& arrived = holds[static_cast<size_t>(action.program)];
      arrived.begins = false;
      list.emplace_back(arrived);
    }
    list.emplace_back(action);
  }
  return list;
}

TEST(RandomLanes, HaveTheBitsOfOneNodeAfterTheOtherInPartsThatAlternate) {
  const Mesh mesh({.tensor = 2});
  World world(mesh.ranks());
  const int pairs = rounds(150);
  std::atomic<int> outlasting = 0;  // actions after which steps may be at work
  run_delayed(world, mesh, 4, [&](RankGroups& groups) {
    BothTargets targets(world, mesh, groups, 5);
    for (int i = 0; i < pairs; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      Program first(mesh, groups.rank()), second(mesh, groups.rank());
      for (Program* const program : {&first, &second}) {
        Builder builder(*program);
        RandomLanes(builder, {.seed = 2 * seed + (program == &first ? 0 : 1)}).write();
      }
      const std::vector<const Program*> programs{&first, &second};
      const std::vector<Action> actions = actions_in_parts(programs, seed);
      const std::vector<ListEntry> list = list_of(programs, actions, seed);
      const auto run = [&](Runtime& runtime, bool in_turn) {
        Executor executor(programs, list, runtime);
        if (in_turn) {
          executor.set_observer([](const Program&, const Node&, std::span<const Tensor>) {});
        }
        for (const auto& [situation, steps] : executor.plan().situations) {
          if (!steps.empty()) ++outlasting;
        }
        return results_of_list(programs, list, executor);
      };
      {
        std::vector<ListEntry> thrice;
        for (int r = 0; r < 3; ++r) thrice.insert(thrice.end(), list.begin(), list.end());
        const MemoryPlan plan = plan_memory(programs, list, targets.host.target());
        ASSERT_THAT(testing::MemoryReplay(programs, plan).run(thrice), ::testing::IsEmpty())
            << "programs " << i;
      }
      const std::vector<float> in_turn = run(targets.host, true);
      ASSERT_EQ(run(targets.host, false), in_turn) << "programs " << i;
      if (i % 3 == 0) {
        ASSERT_EQ(run(targets.device, false), in_turn) << "programs " << i;
      }
    }
  });
  EXPECT_GT(outlasting, pairs);
}

TEST(RandomLanes, HaveTheBitsOfTheProcessorOnDevices) {
  const Mesh mesh({.tensor = 2});
  World world(mesh.ranks());
  run_delayed(world, mesh, 2, [&](RankGroups& groups) {
    BothTargets targets(world, mesh, groups, 6);
    for (int i = 0; i < 40; ++i) {
      Program program(mesh, groups.rank());
      Builder builder(program);
      RandomLanes(builder, {.seed = static_cast<uint64_t>(i)}).write();
      const auto run = [&](Runtime& runtime) {
        Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
        return results(program, executor);
      };
      ASSERT_EQ(run(targets.device), run(targets.host)) << "program " << i;
    }
  });
}

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
      executor.synchronize();
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
    std::vector<Program> programs;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      Program& program = programs.emplace_back(mesh, rank);
      Builder builder(program);
      RandomLanes(builder, {.seed = seed, .own_order = true}).write();
    }
    testing::Rendezvous rendezvous;
    const testing::RankList list{testing::kWholeProgram};
    for (const Program& program : programs) {
      const Program* const pointers[] = {&program};
      rendezvous.add(pointers, plan_lanes(pointers, testing::for_plan(list), host_target(1)), list,
                     1);
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
