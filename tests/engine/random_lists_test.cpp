#include "engine/random_lists.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/world.h"
#include "comm/rank_groups.h"
#include "engine/executor.h"
#include "engine/list_numbers.h"
#include "engine/random_lanes_run.h"
#include "engine/rank_list.h"
#include "engine/rendezvous.h"
#include "ops/host_target.h"
#include "support/memory_replay.h"
#include "support/rounds.h"

namespace tessera {
namespace {

using testing::ListMessage;
using testing::ListNumbers;
using testing::RandomLists;
using testing::RandomRank;
using testing::Rendezvous;

constexpr int kTimes = 2;  // how often a list runs

/// The lists of all ranks, and whether they end.
struct ModelledLists {
  ModelledLists(const ModelledLists&) = delete;
  explicit ModelledLists(std::vector<RandomRank> all) : ranks(std::move(all)) {
    for (const RandomRank& rank : ranks) {
      programs.push_back(rank.pointers());
      plans.push_back(plan_memory(programs.back(), testing::for_plan(rank.list), host_target(1)));
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      rendezvous.add(programs[r], plans[r], ranks[r].list, kTimes);
    }
    numbers.emplace(rendezvous, programs, plans);
  }

  std::vector<RandomRank> ranks;
  std::vector<std::vector<const Program*>> programs;  // by rank
  std::vector<MemoryPlan> plans;
  Rendezvous rendezvous;
  std::optional<ListNumbers> numbers;
};

/// Runs the list of a rank.
class ListRun {
 public:
  ListRun(const RandomRank& rank, MemoryPlan plan, RankGroups& groups)
      : rank_(rank),
        groups_(groups),
        programs_(rank.pointers()),
        runtime_(host_target(1)),
        executor_(programs_, std::move(plan), runtime_) {
    runtime_.join(groups);
    executor_.join_groups();
    join_messages();
  }

  /// Returns what ListNumbers::of() expects.
  std::vector<float> run() {
    for (int number = 0; number < std::ssize(programs_); ++number) {
      const Program& program = *programs_[static_cast<size_t>(number)];
      for (int id = 0; id < std::ssize(program.values()); ++id) {
        if (program.values()[static_cast<size_t>(id)].kind != ValueKind::state) continue;
        testing::give_value(Value{id}, program, executor_, 0, number);
      }
    }
    for (int time = 0; time < kTimes; ++time) {
      for (const auto& entry : rank_.list) {
        if (const auto* const message = std::get_if<ListMessage>(&entry)) {
          follow(*message);
        } else {
          follow(std::get<Action>(entry), time);
        }
      }
    }
    executor_.synchronize();
    for (int number = 0; number < std::ssize(programs_); ++number) {
      const Program& program = *programs_[static_cast<size_t>(number)];
      testing::append(program, executor_, ValueKind::state, numbers_, number);
    }
    return numbers_;
  }

 private:
  using Key = std::tuple<int, int, int>;  // program, micro-batch, value

  void join_messages() {
    const Mesh& mesh = groups_.mesh();
    const std::array axes{mesh.pipeline()};
    if (mesh.size(axes[0]) == 1) return;
    std::set<int> peers;
    for (const auto& entry : rank_.list) {
      const auto* const message = std::get_if<ListMessage>(&entry);
      if (message != nullptr) peers.insert(mesh.stage(message->peer));
    }
    for (const Lane lane : {Lane::messages_forward, Lane::messages_backward}) {
      groups_.connect_posts(axes, word(lane), std::vector<int>(peers.begin(), peers.end()));
    }
  }

  void follow(const ListMessage& message) {
    const Hold& hold = message.hold;
    const Key key{hold.program, hold.micro_batch, hold.values.front().id};
    const std::array axes{groups_.mesh().pipeline()};
    Communicator& lane = groups_.over(axes, word(message.lane));
    if (!hold.begins) {
      lane.wait(posted_.at(key));
      posted_.erase(key);
      executor_.hold(hold);
      if (!message.sends) received_.insert(key);
      return;
    }
    executor_.hold(hold);
    const Tensor& tensor = executor_.tensor(hold.values.front(), hold.program, hold.micro_batch);
    const int peer = groups_.mesh().stage(message.peer);
    const std::string name = "a message";
    posted_[key] =
        message.sends ? lane.post_send(name, peer, tensor) : lane.post_receive(name, peer, tensor);
  }

  void follow(const Action& action, int time) {
    const Program& program = *programs_[static_cast<size_t>(action.program)];
    const ProgramMemory& memory = executor_.plan().programs[static_cast<size_t>(action.program)];
    if (action.steps.begin == 0) {
      for (const Value input : executor_.inputs(action.segment, action.program)) {
        if (received_.erase({action.program, action.micro_batch, input.id}) > 0) continue;
        testing::give_value(input, program, executor_,
                            testing::action_number(time, action.micro_batch), action.program,
                            action.micro_batch);
      }
    }
    executor_.run(action);
    const auto segment =
        static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
    const auto steps = std::ssize(memory.nodes[static_cast<size_t>(segment)]);
    if (action.steps.end < steps) return;
    for (const Value output : testing::outputs_of(program, memory, segment)) {
      const std::vector<float> numbers = testing::sent_numbers(
          executor_, executor_.tensor(output, action.program, action.micro_batch));
      numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    }
  }

  const RandomRank& rank_;
  RankGroups& groups_;
  std::vector<const Program*> programs_;
  Runtime runtime_;
  Executor executor_;
  std::map<Key, PostedMessage> posted_;
  std::set<Key> received_;
  std::vector<float> numbers_;
};

/// Runs the lists of all ranks; returns the error, empty if they end. Their numbers are then right.
std::string error_of_lists(const Mesh& mesh, const ModelledLists& lists, uint64_t seed,
                           std::chrono::milliseconds timeout) {
  World world(mesh.ranks(), timeout);
  try {
    testing::run_delayed(world, mesh, seed, [&](RankGroups& groups) {
      const auto rank = static_cast<size_t>(groups.rank());
      const std::vector<float> numbers =
          ListRun(lists.ranks[rank], lists.plans[rank], groups).run();
      EXPECT_EQ(numbers, lists.numbers->of(groups.rank())) << "rank " << rank;
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ModelledLists random_lists(const Mesh& mesh, uint64_t seed) {
  const RandomLists lists(mesh, seed);
  std::vector<RandomRank> ranks;
  for (int rank = 0; rank < mesh.ranks(); ++rank) ranks.push_back(lists.rank(rank));
  return ModelledLists(std::move(ranks));
}

const std::vector<Mesh>& list_meshes() {
  static const std::vector<Mesh> all{
      Mesh({.pipeline = 2}),
      Mesh({.tensor = 2, .data = {2}}),
      Mesh({.tensor = 2, .pipeline = 2}),
      Mesh({.pipeline = 3, .data = {2}}),
      Mesh({.tensor = 2, .pipeline = 2, .data = {2}}),
      Mesh({.tensor = 3, .data = {3}}),
      Mesh({.tensor = 2, .pipeline = 2, .data = {4}}),
      Mesh({.tensor = 2, .pipeline = 4, .data = {2}}),
  };
  return all;
}

TEST(RandomLists, EndUnlessTheirRanksWaitForEachOther) {
  int ended = 0, stuck = 0, late = 0;
  for (int i = 0; i < testing::rounds(40); ++i) {
    const Mesh& mesh = list_meshes()[static_cast<size_t>(i) % list_meshes().size()];
    const auto seed = static_cast<uint64_t>(i);
    const ModelledLists lists = random_lists(mesh, seed);
    if (lists.numbers->ends()) {
      ++ended;
      if (lists.rendezvous.late_waits() > 0) ++late;
      EXPECT_EQ(error_of_lists(mesh, lists, seed, std::chrono::minutes(1)), "") << "lists " << i;
    } else if (++stuck <= 5) {
      EXPECT_THAT(error_of_lists(mesh, lists, seed, std::chrono::milliseconds(100)),
                  ::testing::ContainsRegex("sum [0-9]+ of|a message"))
          << "lists " << i << "\n"
          << lists.rendezvous.stuck();
    }
  }
  EXPECT_GT(ended, 10);
  EXPECT_GT(late, 10);
  EXPECT_GT(stuck, 5);
}

/// The lists of two programs, each of which sums a state of its own. Nothing awaits the sums. The
/// programs come in an order of each rank's own, so that each waits for the next one in a circle if
/// one of the sums is to end before the other begins.
ModelledLists lists_in_a_circle(const Mesh& mesh, Lane lane_of_second) {
  const Spec spec{{24}, DType::f32, {}};
  std::vector<RandomRank> ranks(static_cast<size_t>(mesh.ranks()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    RandomRank& written = ranks[static_cast<size_t>(rank)];
    for (const auto& [axis, lane] :
         {std::pair{mesh.tensor(), Lane::exchanges}, std::pair{mesh.data()[0], lane_of_second}}) {
      auto& program = written.programs.emplace_back(std::make_unique<Program>(mesh, rank));
      Builder builder(*program);
      const Value state = builder.state(fmt::format("s{}", axis.index), spec);
      const std::string name = fmt::format("sum 0 of {}", mesh.name(axis));
      builder.apply(std::make_shared<testing::LaneSum>(lane, std::vector{axis}, 2, name,
                                                       /*in_place=*/true),
                    {state});
    }
    const int first =
        (mesh.coordinate(rank, mesh.tensor()) + mesh.coordinate(rank, mesh.data()[0])) % 2;
    for (const int program : {first, 1 - first})
      written.list.emplace_back(Action{.program = program});
  }
  return ModelledLists(std::move(ranks));
}

TEST(RandomLists, LoseNothingWhileLanesAndMessagesAreAtWork) {
  for (int i = 0; i < testing::rounds(20); ++i) {
    const Mesh& mesh = list_meshes()[static_cast<size_t>(i) % list_meshes().size()];
    const RandomRank rank = RandomLists(mesh, static_cast<uint64_t>(i)).rank(mesh.ranks() / 2);
    const std::vector<const Program*> programs = rank.pointers();
    std::vector<ListEntry> list = testing::for_plan(rank.list);
    const MemoryPlan plan = plan_memory(programs, list, host_target(1));
    const std::vector<ListEntry> once = list;
    list.insert(list.end(), once.begin(), once.end());
    EXPECT_THAT(testing::MemoryReplay(programs, plan).run(list), ::testing::IsEmpty())
        << "lists " << i;
  }
}

TEST(RandomLists, DoNotWaitForSumsOfOtherLanes) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const ModelledLists beside = lists_in_a_circle(mesh, Lane::reductions);
  EXPECT_TRUE(beside.numbers->ends());
  EXPECT_EQ(error_of_lists(mesh, beside, 0, std::chrono::minutes(1)), "");
  const ModelledLists in_turn = lists_in_a_circle(mesh, Lane::exchanges);
  EXPECT_FALSE(in_turn.numbers->ends());
  EXPECT_THAT(error_of_lists(mesh, in_turn, 0, std::chrono::milliseconds(100)),
              ::testing::HasSubstr("sum 0 of "));
}

}  // namespace
}  // namespace tessera
