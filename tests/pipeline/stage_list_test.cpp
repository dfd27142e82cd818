#include "pipeline/stage_list.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "pipeline/clock.h"
#include "pipeline/generate.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

/// Programs of a stage's chunks. Each sends and gets one value in each direction; the values of
/// program p are 10 * p + 0 to 3.
std::vector<ChunkProgram> programs_of(const PipelineSchedule& schedule, int stage) {
  std::vector<ChunkProgram> programs;
  const int last = schedule.placement.chunks() - 1;
  for (const int chunk : schedule.placement.chunks_of(stage)) {
    const int program = static_cast<int>(programs.size());
    ChunkProgram next{.program = program,
                      .activations_in = {},
                      .activations_out = {},
                      .gradients_in = {},
                      .gradients_out = {}};
    if (chunk > 0) {
      next.activations_in = {Value{10 * program}};
      next.gradients_out = {Value{10 * program + 3}};
    }
    if (chunk < last) {
      next.activations_out = {Value{10 * program + 1}};
      next.gradients_in = {Value{10 * program + 2}};
    }
    programs.push_back(next);
  }
  return programs;
}

StageList list_of(const PipelineSchedule& schedule, int stage) {
  return stage_list(in_halves(schedule), stage, programs_of(schedule, stage));
}

std::string text_of(const Hold& hold) {
  return fmt::format("{} {}.{} frame {}", hold.begins ? "hold" : "end", hold.program,
                     hold.values.front().id % 10, hold.micro_batch);
}

/// The entries as the plan gets them: "forward 0 frame 0", "hold 0.1 frame 0".
std::vector<std::string> for_plan(const StageList& list) {
  std::vector<std::string> result;
  for (const ListEntry& entry : list.for_plan()) {
    if (const auto* const action = std::get_if<Action>(&entry)) {
      result.push_back(fmt::format("{} {} frame {}", word(action->segment), action->program,
                                   action->micro_batch));
    } else {
      result.push_back(text_of(std::get<Hold>(entry)));
    }
  }
  return result;
}

TEST(StageList, OfOneStageWithOneChunkIsForwardAndBackwardInOneFrame) {
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward,
                                             {.ranks = 1, .chunks = 1, .micro_batches = 3});
  const StageList list = list_of(schedule, 0);
  EXPECT_EQ(list.micro_batches, 3);
  EXPECT_THAT(for_plan(list),
              ElementsAre("forward 0 frame 0", "backward 0 frame 0", "forward 0 frame 0",
                          "backward 0 frame 0", "forward 0 frame 0", "backward 0 frame 0"));
}

/// What a stage sends is kept from the post to the wait, and what it gets from the post on.
TEST(StageList, HoldsABoundaryFromItsPostToItsWait) {
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward,
                                             {.ranks = 2, .chunks = 2, .micro_batches = 1});
  EXPECT_THAT(for_plan(list_of(schedule, 0)),
              ElementsAre("hold 0.2 frame 0", "forward 0 frame 0", "hold 0.1 frame 0",
                          "end 0.2 frame 0", "end 0.1 frame 0", "backward 0 frame 0"));
  EXPECT_THAT(for_plan(list_of(schedule, 1)),
              ElementsAre("hold 0.0 frame 0", "end 0.0 frame 0", "forward 0 frame 0",
                          "backward 0 frame 0", "hold 0.3 frame 0", "end 0.3 frame 0"));
}

/// Between two chunks of one stage nothing is sent: the boundary is kept, and copied to the inputs
/// of the other chunk right before its action.
TEST(StageList, PassesABoundaryWithinAStage) {
  const PipelineSchedule schedule =
      generate(ScheduleKind::interleaved, {.ranks = 1, .chunks = 2, .micro_batches = 1});
  const StageList list = list_of(schedule, 0);
  EXPECT_THAT(
      for_plan(list),
      ElementsAre("forward 0 frame 0", "hold 0.1 frame 0", "hold 1.0 frame 0", "end 0.1 frame 0",
                  "end 1.0 frame 0", "forward 1 frame 0", "backward 1 frame 0", "hold 1.3 frame 0",
                  "hold 0.2 frame 0", "end 1.3 frame 0", "end 0.2 frame 0", "backward 0 frame 0"));
  for (const StageEntry& entry : list.entries) {
    EXPECT_FALSE(std::holds_alternative<StageMessage>(entry));
  }
}

/// All micro-batches of a chunk run the same segments. Gradients are sent between the halves.
TEST(StageList, RunsWholeBackwardPassesInHalvesWhereOthersDo) {
  for (const ScheduleKind kind : {ScheduleKind::dualpipe_v, ScheduleKind::zero_bubble_v}) {
    const PipelineSchedule schedule = generate(kind, {.ranks = 4, .chunks = 8, .micro_batches = 8});
    for (int stage = 0; stage < 4; ++stage) {
      const StageList list = list_of(schedule, stage);
      for (size_t i = 0; i < list.entries.size(); ++i) {
        const auto* const action = std::get_if<StageAction>(&list.entries[i]);
        if (action == nullptr) continue;
        EXPECT_NE(action->run.segment, Segment::backward);
        const auto message = schedule.placement.output_of(action->action);
        if (!message) continue;
        ASSERT_LT(i + 1, list.entries.size());
        const auto* const post = std::get_if<StageMessage>(&list.entries[i + 1]);
        ASSERT_NE(post, nullptr) << words_for(action->action);
        EXPECT_EQ(post->message, *message);
        EXPECT_EQ(post->call, MessageCall::post_send);
      }
    }
  }
}

/// A chunk has as many frames as micro-batches are in flight there, and two more at most: one whose
/// input is awaited already, and one whose gradients are under way.
TEST(StageList, HasAFrameForEachMicroBatchInFlight) {
  for (const int stages : {2, 4}) {
    const PipelineSchedule schedule =
        generate(ScheduleKind::one_forward_one_backward,
                 {.ranks = stages, .chunks = stages, .micro_batches = 12});
    const ScheduleFigures figures = measure(schedule, {});
    for (int stage = 0; stage < stages; ++stage) {
      int frames = 0;
      for (const ListEntry& entry : list_of(schedule, stage).for_plan()) {
        std::visit([&](const auto& any) { frames = std::max(frames, any.micro_batch + 1); }, entry);
      }
      const int peak = figures.ranks[static_cast<size_t>(stage)].peak_in_flight;
      EXPECT_GE(frames, peak);
      EXPECT_LE(frames, peak + 2);
    }
  }
}

TEST(StageList, OfAForwardPassGoesThroughTheChunksInTheirOrder) {
  const PipelineSchedule schedule = forward_schedule(v_placement(2));
  EXPECT_THAT(for_plan(list_of(schedule, 0)),
              ElementsAre("hold 1.0 frame 0", "forward 0 frame 0", "hold 0.1 frame 0",
                          "end 1.0 frame 0", "end 0.1 frame 0", "forward 1 frame 0"));
  EXPECT_THAT(schedule.ranks, SizeIs(2));
}

}  // namespace
}  // namespace tessera
