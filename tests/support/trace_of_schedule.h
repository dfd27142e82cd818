#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/run_trace.h"

namespace tessera::testing {

/// When something happens, and on which rank.
struct TracedMoment {
  double start = 0;
  double end = 0;
  const RankTrace* rank = nullptr;
};

/// Expects that one moment is over before another begins, as far as the ranks' clocks tell.
inline void expect_before(const TracedMoment& earlier, const TracedMoment& later) {
  constexpr double kRounding = 2e-9;
  const double uncertainty = earlier.rank == later.rank ? 0
                                                        : earlier.rank->step.clock_uncertainty +
                                                              later.rank->step.clock_uncertainty;
  EXPECT_LE(earlier.end, later.start + uncertainty + kRounding)
      << "rank " << earlier.rank->rank() << " and then rank " << later.rank->rank();
}

/// Expects that each rank of a trace did exactly what a schedule has for its stage, in its order,
/// and that causes come before effects on the axis of times that all ranks share.
inline void expect_trace_of(const PipelineSchedule& schedule, const RunTrace& run) {
  EXPECT_EQ(run.schedule, (TracedSchedule{schedule.name, schedule.micro_batches}));
  using Key = std::pair<int, BoundaryMessage>;  // a pipeline's first rank, and a message
  std::map<Key, TracedMoment> posts, waits;
  std::map<std::pair<int, ChunkAction>, TracedMoment> actions;
  for (const RankTrace& rank : run.ranks) {
    SCOPED_TRACE(rank.rank());
    std::vector<ScheduleEntry> entries;
    for (const TimedEntry& timed : rank.list) {
      entries.push_back(timed.entry);
      const TracedMoment moment{timed.start, timed.end(), &rank};
      if (const auto* const action = std::get_if<ChunkAction>(&timed.entry)) {
        actions[{rank.pipeline, *action}] = moment;
        continue;
      }
      const auto& [call, message] = std::get<MessageEntry>(timed.entry);
      if (call == MessageCall::post_send) posts[{rank.pipeline, message}] = moment;
      if (call == MessageCall::wait_receive) waits[{rank.pipeline, message}] = moment;
    }
    EXPECT_TRUE(entries == schedule.ranks.at(static_cast<size_t>(rank.stage)))
        << entries.size() << " entries";
    EXPECT_EQ(rank.chunks, schedule.placement.chunks_of(rank.stage));
  }
  ASSERT_EQ(posts.size(), waits.size());
  for (const auto& [message, wait] : waits) {
    const TracedMoment& post = posts.at(message);
    EXPECT_NE(post.rank, wait.rank);
    expect_before({post.start, post.start, post.rank}, {wait.end, wait.end, wait.rank});
  }
  for (const auto& [pipeline_action, moment] : actions) {
    const auto& [pipeline, action] = pipeline_action;
    const auto of = [&](ActionKind kind, int chunk) {
      return actions.find({pipeline, {kind, chunk, action.micro_batch}});
    };
    if (action.kind != ActionKind::forward) {
      expect_before(of(ActionKind::forward, action.chunk)->second, moment);
    }
    if (action.kind == ActionKind::weight_gradients) {
      expect_before(of(ActionKind::input_gradients, action.chunk)->second, moment);
    } else {
      // The action of the chunk from which it has its input.
      const int chunk = action.chunk + (action.kind == ActionKind::forward ? -1 : 1);
      if (const auto before = of(action.kind, chunk); before != actions.end()) {
        expect_before(before->second, moment);
      }
    }
  }
}

}  // namespace tessera::testing
