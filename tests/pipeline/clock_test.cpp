#include "pipeline/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "pipeline/generate.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

/// The starts and ends of a rank's actions.
std::vector<std::pair<double, double>> times_of(const RankFigures& rank) {
  std::vector<std::pair<double, double>> times;
  for (const TimedAction& timed : rank.actions) times.emplace_back(timed.start, timed.end);
  return times;
}

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(PipelineClock, AnActionBeginsWhenItsMessageIsThere) {
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward, {2, 2, 2, {}});
  const ScheduleFigures figures =
      measure(schedule, {.chunks = {{10, 12, 8}, {20, 24, 16}}, .latency = 3});
  EXPECT_THAT(times_of(figures.ranks[1]),
              ElementsAre(Pair(13, 33), Pair(33, 73), Pair(73, 93), Pair(93, 133)));
  EXPECT_THAT(times_of(figures.ranks[0]),
              ElementsAre(Pair(0, 10), Pair(10, 20), Pair(76, 96), Pair(136, 156)));
  EXPECT_EQ(figures.makespan, 156);
  EXPECT_EQ(figures.ranks[0].busy, 60);
  EXPECT_EQ(figures.ranks[1].busy, 120);
  EXPECT_DOUBLE_EQ(figures.bubble, (2 * 156.0 - 180) / 180);
}

TEST(PipelineClock, AMessageMovesOnceItsReceiveIsPosted) {
  // Rank 1 posts the receive of micro-batch 1 only when the backward of micro-batch 0 is next, so
  // the message that was sent at 2 moves from 7 to 12.
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward, {2, 2, 2, {}});
  const ScheduleFigures figures = measure(schedule, {.latency = 5});
  EXPECT_THAT(times_of(figures.ranks[1]),
              ElementsAre(Pair(6, 7), Pair(7, 9), Pair(12, 13), Pair(13, 15)));
}

TEST(PipelineClock, CountsThePeaksOfEachHalfOfTheBackward) {
  ActionLists lists{.name = "halves", .micro_batches = 3, .placement = loop_placement(1, 1)};
  using enum ActionKind;
  lists.ranks = {{{forward, 0, 0},
                  {forward, 0, 1},
                  {input_gradients, 0, 0},
                  {input_gradients, 0, 1},
                  {forward, 0, 2},
                  {weight_gradients, 0, 0},
                  {weight_gradients, 0, 1},
                  {backward, 0, 2}}};
  const ScheduleFigures figures = measure(place_messages(lists), {.chunks = {{1, 2, 4}}});
  EXPECT_EQ(figures.ranks[0].peak_in_flight, 3);
  EXPECT_EQ(figures.ranks[0].peak_before_gradients, 2);
  EXPECT_EQ(figures.ranks[0].peak_deferred, 2);
  EXPECT_EQ(figures.makespan, 3 * 7);
  EXPECT_EQ(figures.bubble, 0);
}

TEST(PipelineClock, DoesNotMeasureADeadlock) {
  ActionLists lists{.name = "stuck", .micro_batches = 1, .placement = loop_placement(2, 1)};
  lists.ranks = {{{ActionKind::backward, 0, 0}, {ActionKind::forward, 0, 0}},
                 {{ActionKind::forward, 1, 0}, {ActionKind::backward, 1, 0}}};
  const PipelineSchedule schedule = place_messages(lists);
  EXPECT_THROW(measure(schedule, {}), InternalError);
  const std::vector<StuckRank> stuck = stuck_ranks(schedule);
  ASSERT_EQ(stuck.size(), 2U);
  EXPECT_EQ(stuck[0].rank, 0);
  EXPECT_EQ(stuck[0].entry, 1U);
}

}  // namespace
}  // namespace tessera
