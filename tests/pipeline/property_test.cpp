// Properties of the schedules over many shapes: they may run, and have the bubble and the peaks of
// the papers.

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "naive_executor.h"
#include "pipeline/clock.h"
#include "pipeline/place_messages.h"
#include "pipeline/validate.h"
#include "sample_schedules.h"

namespace tessera {
namespace {

using testing::random_kind;
using testing::random_shape;

const ScheduleTimes kEqualTimes{};

std::vector<int> peaks_of(const ScheduleFigures& figures) {
  std::vector<int> peaks;
  for (const RankFigures& rank : figures.ranks) peaks.push_back(rank.peak_in_flight);
  return peaks;
}

ScheduleFigures figures_of(ScheduleKind kind, const PipelineShape& shape) {
  return measure(generate(kind, shape), kEqualTimes);
}

/// The peaks of 1F1B over v chunks in groups of `largest` micro-batches: one more than the warm-up.
std::vector<int> warmup_peaks(const PipelineShape& shape, int largest) {
  const int chunks = shape.chunks / shape.ranks;
  std::vector<int> peaks;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int after = shape.ranks - rank - 1;
    const int warmup = chunks == 1 ? after : 2 * after + (chunks - 1) * largest;
    peaks.push_back(std::min(warmup + 1, shape.micro_batches * chunks));
  }
  return peaks;
}

double ideal_bubble(const PipelineShape& shape) {
  return static_cast<double>(shape.ranks - 1) * shape.ranks /
         (static_cast<double>(shape.micro_batches) * shape.chunks);
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

RC_GTEST_PROP(PipelineSchedules, MayRunInEveryShape, ()) {
  const ScheduleKind kind = random_kind();
  const PipelineShape shape = random_shape(kind, 8, 24);
  const PipelineSchedule schedule = generate(kind, shape);
  const auto findings = validate(schedule);
  if (!findings.empty()) RC_FAIL(findings.front().text());
  RC_ASSERT(testing::run_naively(schedule));
}

RC_GTEST_PROP(PipelineSchedules, OfOneFamilyHaveTheirBubbleAndTheirPeaks, ()) {
  const auto kind =
      *rc::gen::element(ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved);
  const PipelineShape shape = random_shape(kind, 8, 24);
  const ScheduleFigures figures = figures_of(kind, shape);
  RC_ASSERT(near(figures.bubble, ideal_bubble(shape)));
  RC_ASSERT(peaks_of(figures) == warmup_peaks(shape, shape.ranks));
}

RC_GTEST_PROP(PipelineSchedules, OfAllForwardsFirstHoldAllMicroBatches, ()) {
  const auto kind = ScheduleKind::all_forward_all_backward;
  const PipelineShape shape = random_shape(kind, 8, 24);
  const ScheduleFigures figures = figures_of(kind, shape);
  const int all = shape.micro_batches * shape.chunks / shape.ranks;
  RC_ASSERT(peaks_of(figures) == std::vector<int>(static_cast<size_t>(shape.ranks), all));
  RC_ASSERT(figures.bubble > ideal_bubble(shape) - 1e-9);
  const int consecutive = shape.consecutive_micro_batches.value_or(shape.micro_batches);
  const int tail = shape.micro_batches % consecutive;
  const bool filled = (tail > 0 ? tail : consecutive) >= shape.ranks;
  RC_ASSERT(near(figures.bubble, ideal_bubble(shape)) == (filled || shape.chunks == shape.ranks));
}

/// The figures of the flexible schedule in a shape; a text that says what is wrong, or "".
std::string check_flexible(const PipelineShape& shape) {
  const PipelineSchedule schedule = generate(ScheduleKind::flexible, shape);
  if (const auto findings = validate(schedule); !findings.empty()) return findings[0].text();
  const int consecutive = *shape.consecutive_micro_batches;
  const int tail = shape.micro_batches % consecutive;
  const bool merged = shape.micro_batches > consecutive && tail > 0 && tail < shape.ranks;
  const ScheduleFigures figures = measure(schedule, kEqualTimes);
  const bool warmed =
      peaks_of(figures) == warmup_peaks(shape, merged ? consecutive + tail : consecutive);
  const int all = shape.micro_batches * shape.chunks / shape.ranks;
  const bool all_first =
      peaks_of(figures) == std::vector<int>(static_cast<size_t>(shape.ranks), all);
  const bool ideal = near(figures.bubble, ideal_bubble(shape));
  if (figures.bubble < ideal_bubble(shape) - 1e-9) return "less than the ideal bubble";
  if (consecutive >= shape.ranks && !warmed) return "other peaks than those of the warm-up";
  if (consecutive >= shape.ranks && !ideal) return "not the ideal bubble";
  return warmed || all_first ? "" : "neither of the two orders";
}

TEST(PipelineSchedules, OfTheFlexibleOrderNeverDeadlock) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
        for (int consecutive = 1; consecutive <= micro_batches; ++consecutive) {
          const PipelineShape shape{ranks, ranks * chunks, micro_batches, consecutive};
          EXPECT_EQ(check_flexible(shape), "") << ranks << " ranks, " << chunks << " chunks, "
                                               << micro_batches << " in groups of " << consecutive;
        }
      }
    }
  }
}

RC_GTEST_PROP(PipelineSchedules, OfTheFlexibleOrderHaveTheirPeaks, ()) {
  PipelineShape shape = random_shape(ScheduleKind::flexible, 8, 24);
  shape.consecutive_micro_batches = *rc::gen::inRange(1, shape.micro_batches + 1);
  RC_ASSERT(check_flexible(shape) == "");
}

TEST(PipelineSchedules, OfTheFlexibleOrderFallBackOnlyWhereItDeadlocks) {
  const auto all_first = [](const PipelineShape& shape) {
    return generate(ScheduleKind::flexible, shape).ranks ==
           generate(ScheduleKind::all_forward_all_backward, shape).ranks;
  };
  EXPECT_TRUE(all_first({4, 8, 8, 2}));
  EXPECT_FALSE(all_first({3, 6, 6, 2}));
  // A short last group joins the one before it: these would deadlock otherwise.
  EXPECT_FALSE(all_first({4, 12, 5, 4}));
  EXPECT_FALSE(all_first({5, 10, 7, 5}));
}

RC_GTEST_PROP(PipelineSchedules, OfZeroBubbleH1HaveItsBubbleAndThePeakOf1F1B, ()) {
  const PipelineShape shape = random_shape(ScheduleKind::zero_bubble_h1, 8, 24);
  const PipelineSchedule schedule = generate(ScheduleKind::zero_bubble_h1, shape);
  // The weight gradients fit between the other passes, as the paper assumes.
  const int weight = *rc::gen::inRange(1, 9);
  const ChunkTimes times{.forward = *rc::gen::inRange(weight, 9) * 1.0,
                         .input_gradients = *rc::gen::inRange(weight, 9) * 1.0,
                         .weight_gradients = weight * 1.0};
  const ScheduleFigures figures = measure(schedule, {.chunks = {times}});
  const int peak = std::min(shape.ranks, shape.micro_batches);
  RC_ASSERT(peaks_of(figures) == std::vector<int>(static_cast<size_t>(shape.ranks), peak));
  RC_ASSERT(peaks_of(figures_of(ScheduleKind::one_forward_one_backward, shape))[0] == peak);
  for (size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    // The weight gradients of one more wait while those of the oldest are computed.
    RC_ASSERT(figures.ranks[rank].peak_deferred <= static_cast<int>(rank) + 1);
  }
  if (shape.micro_batches < shape.ranks) return;
  const double idle = figures.makespan - figures.ranks[0].busy;
  RC_ASSERT(near(
      idle, (shape.ranks - 1) * (times.forward + times.input_gradients - times.weight_gradients)));
}

RC_GTEST_PROP(PipelineSchedules, OfZeroBubbleVDoNotIdleWithinARank, ()) {
  const PipelineShape shape = random_shape(ScheduleKind::zero_bubble_v, 8, 24);
  const ScheduleFigures figures = figures_of(ScheduleKind::zero_bubble_v, shape);
  for (const RankFigures& rank : figures.ranks) {
    RC_ASSERT(rank.peak_in_flight <= 2 * shape.ranks);
    if (shape.micro_batches < 2 * shape.ranks - 1) continue;
    RC_ASSERT(rank.peak_in_flight == 2 * shape.ranks);
    RC_ASSERT(near(rank.actions.back().end - rank.actions.front().start, rank.busy));
  }
  if (shape.micro_batches < 2 * shape.ranks - 1) return;
  RC_ASSERT(near(figures.makespan, 6.0 * shape.micro_batches + shape.ranks - 1));
}

RC_GTEST_PROP(PipelineSchedules, OfDualPipeVHoldOneMoreThanTheirChunks, ()) {
  const PipelineShape shape = random_shape(ScheduleKind::dualpipe_v, 8, 24);
  const ScheduleFigures figures = figures_of(ScheduleKind::dualpipe_v, shape);
  for (const RankFigures& rank : figures.ranks) {
    RC_ASSERT(rank.peak_in_flight == 2 * shape.ranks + 1);
  }
  RC_ASSERT(near(figures.makespan, 6.0 * shape.micro_batches + shape.ranks - 1));
}

/// No wait for a send costs time: without them, every action runs when it does with them.
RC_GTEST_PROP(PipelineSchedules, WaitForSendsThatAreDone, ()) {
  const ScheduleKind kind = random_kind();
  const PipelineSchedule schedule = generate(kind, random_shape(kind, 6, 12));
  ScheduleTimes times{.chunks = {}, .latency = *rc::gen::inRange(0, 5) * 1.0};
  for (int chunk = 0; chunk < schedule.placement.chunks(); ++chunk) {
    times.chunks.push_back({.forward = *rc::gen::inRange(1, 9) * 1.0,
                            .input_gradients = *rc::gen::inRange(1, 9) * 1.0,
                            .weight_gradients = *rc::gen::inRange(1, 9) * 1.0});
  }
  PipelineSchedule without = schedule;
  for (auto& list : without.ranks) {
    std::erase_if(list, [](const ScheduleEntry& entry) {
      const auto* call = std::get_if<MessageEntry>(&entry);
      return call != nullptr && call->call == MessageCall::wait_send;
    });
  }
  const ScheduleFigures with = measure(schedule, times);
  const ScheduleFigures fast = measure(without, times);
  RC_ASSERT(with.makespan == fast.makespan);
  for (size_t rank = 0; rank < with.ranks.size(); ++rank) {
    for (size_t i = 0; i < with.ranks[rank].actions.size(); ++i) {
      RC_ASSERT(with.ranks[rank].actions[i].start == fast.ranks[rank].actions[i].start);
    }
  }
}

/// What a run executes: no chunk has both whole backward passes and halves.
RC_GTEST_PROP(PipelineSchedules, InHalvesMayRunAndTakeNoLonger, ()) {
  const ScheduleKind kind = random_kind();
  const PipelineSchedule schedule = generate(kind, random_shape(kind, 6, 12));
  const PipelineSchedule halved = in_halves(schedule);
  RC_ASSERT(validate(halved).empty());
  std::map<int, std::set<ActionKind>> kinds;  // by chunk
  for (const RankFigures& rank : measure(halved, {}).ranks) {
    for (const TimedAction& timed : rank.actions)
      kinds[timed.action.chunk].insert(timed.action.kind);
  }
  for (const auto& [chunk, of_chunk] : kinds) {
    RC_ASSERT(of_chunk.contains(ActionKind::backward) !=
              of_chunk.contains(ActionKind::input_gradients));
  }
  RC_ASSERT(measure(halved, {}).makespan <= measure(schedule, {}).makespan + 1e-9);
  if (kind != ScheduleKind::dualpipe_v) RC_ASSERT(halved == schedule);
}

}  // namespace
}  // namespace tessera
