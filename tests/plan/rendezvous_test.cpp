#include "engine/rendezvous.h"

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "engine/rank_list.h"
#include "ops/host_target.h"
#include "pipeline/generate.h"
#include "plan/overlap_step.h"
#include "plan/programs.h"
#include "plan/small_run.h"
#include "support/rounds.h"

namespace tessera {
namespace {

/// Returns what a rank does in a step.
testing::RankList step_of(const StepPrograms& programs, int micro_batches) {
  const auto& [mesh, rank] = programs.mesh_rank();
  const std::vector<int> stages = mesh.group(rank, std::array{mesh.pipeline()});
  const StageList list = programs.step_list(0, micro_batches);
  testing::RankList result{programs.start_action()};
  for (const StageEntry& entry : list.entries) {
    if (const auto* const action = std::get_if<StageAction>(&entry)) {
      for (const Action& run : action->runs()) result.emplace_back(run);
    } else if (const auto* const message = std::get_if<StageMessage>(&entry)) {
      const bool sends =
          message->call == MessageCall::post_send || message->call == MessageCall::wait_send;
      result.emplace_back(testing::ListMessage{.hold = message->hold,
                                               .sends = sends,
                                               .peer = stages[static_cast<size_t>(message->peer)],
                                               .lane = message_lane(message->message.kind)});
    }
  }
  result.emplace_back(programs.update_action(list));
  return result;
}

/// Nodes that take times that are drawn, the same on all ranks of a stage.
OverlapOptions random_times(uint64_t seed) {
  return {.seconds =
              [seed](const Program& program, const Node& node) {
                const auto index = static_cast<uint64_t>(&node - program.nodes().data());
                const auto stage = static_cast<uint64_t>(program.mesh().stage(program.rank()));
                return static_cast<double>(std::mt19937_64(seed + 1000 * index + stage)() % 100);
              },
          .memory = int64_t{1} << 30};
}

struct LayoutOfRanks {
  int ranks = 0;
  std::vector<std::string> keys = {};
};

const std::vector<LayoutOfRanks>& layouts_of_steps() {
  static const std::vector<LayoutOfRanks> all{
      {4, {"parallel.tensor=2"}},
      {4, {"shard.optimizer='all'", "shard.gradients='all'", "shard.weights='all'"}},
      {8,
       {"model.family='mixtral'", "model.experts=4", "model.experts_per_token=2",
        "model.expert_size=16", "model.feed_forward_size=0", "parallel.expert=4"}},
      {8, {"parallel.pipeline=2", "parallel.tensor=2", "shard.optimizer='all'"}},
      {8, {"parallel.pipeline=4", "model.tied_head=true"}},
      {8, {"parallel.pipeline=2", "parallel.context=2", "train.recompute=['layer']"}},
      {16, {"parallel.pipeline=4", "parallel.tensor=2", "shard.optimizer='all'"}},
  };
  return all;
}

/// How the programs of many ranks overlap.
struct Overlapped {
  int with_turns = 0;
  int with_early_sums = 0;
};

/// Returns where ranks stand that wait for each other for ever; empty if all of them end. Counts
/// the ranks whose micro-batches take turns, and those that begin sums early.
std::string stuck_ranks_of(const RunConfig& config, int ranks, const OverlapOptions& times,
                           Overlapped& overlapped) {
  const Mesh mesh = mesh_of(config, ranks);
  const auto written = [&](int rank) { return step_programs(config, {mesh, rank}); };
  const int micro_batches =
      static_cast<int>(config.train.global_batch / mesh.group_ranks(mesh.data()));
  std::vector<StepPrograms> programs;
  std::vector<testing::RankList> lists;
  std::vector<MemoryPlan> plans;
  FoundOrders found;
  for (int rank = 0; rank < ranks; ++rank) {
    programs.push_back(written(rank));
    overlap(programs.back(), times, written, found);
    if (!programs.back().sets.front().turns.empty()) ++overlapped.with_turns;
    if (programs.back().early_sums.value_or(0) > 0) ++overlapped.with_early_sums;
    lists.push_back(step_of(programs.back(), micro_batches));
    plans.push_back(plan_lanes(programs.back().list(), programs.back().actions(), host_target(1)));
  }
  testing::Rendezvous rendezvous;
  for (size_t r = 0; r < programs.size(); ++r) {
    rendezvous.add(programs[r].list(), plans[r], lists[r], 2);
  }
  return rendezvous.ends() ? "" : rendezvous.stuck();
}

TEST(Rendezvous, OfTheStepsOfAnyOverlapEnds) {
  Overlapped overlapped;
  for (const LayoutOfRanks& layout : layouts_of_steps()) {
    std::vector<std::string> keys = layout.keys;
    keys.emplace_back("parallel.overlap=false");  // random_times() has the times
    const RunConfig config = testing::small_run(4, keys);
    for (int seed = 0; seed < testing::rounds(2); ++seed) {
      EXPECT_EQ(stuck_ranks_of(config, layout.ranks, random_times(static_cast<uint64_t>(seed)),
                               overlapped),
                "")
          << fmt::format("{}", fmt::join(layout.keys, " ")) << ", seed " << seed;
    }
  }
  EXPECT_GT(overlapped.with_turns, 8);
  EXPECT_GT(overlapped.with_early_sums, 8);
}

TEST(Rendezvous, OfTheStepsOfAnyScheduleEnds) {
  for (const std::string_view schedule : kWordsOf<ScheduleKind>) {
    const bool has_one_chunk = schedule == "1f1b" || schedule == "zb-h1";
    const RunConfig config = testing::small_run(
        8, {"parallel.pipeline=4", fmt::format("parallel.schedule='{}'", schedule),
            fmt::format("parallel.virtual_stages={}", has_one_chunk ? 1 : 2),
            "parallel.overlap=false"});
    Overlapped overlapped;
    EXPECT_EQ(stuck_ranks_of(config, 4, random_times(1), overlapped), "") << schedule;
  }
}

}  // namespace
}  // namespace tessera
