#include "pipeline/generate.h"

#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "sample_schedules.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_for(ScheduleKind kind, const PipelineShape& shape) {
  return error_of([&] { generate(kind, shape); });
}

TEST(PipelineShape, IsRefusedWithWhatToChange) {
  using enum ScheduleKind;
  EXPECT_THAT(error_for(flexible, {4, 3, 8, {}}),
              HasSubstr("4 stages needs at least 4 chunks, found 3: take fewer stages"));
  EXPECT_THAT(error_for(flexible, {4, 0, 8, {}}), HasSubstr("found 4 stages, 0 chunks"));
  EXPECT_THAT(error_for(flexible, {4, 4, 0, {}}), HasSubstr("0 micro-batches"));
  EXPECT_THAT(error_for(flexible, {4, 6, 8, {}}), HasSubstr("expected a multiple of 4"));
  EXPECT_THAT(error_for(flexible, {4, 8, 8, 9}),
              HasSubstr("found 9, expected 1 to the number of micro-batches (8)"));
  EXPECT_THAT(error_for(flexible, {4, 8, 8, 0}), HasSubstr("found 0, expected 1"));
  EXPECT_THAT(error_for(zero_bubble_v, {4, 8, 8, 2}), HasSubstr("no choice of consecutive"));
  EXPECT_THAT(error_for(zero_bubble_v, {4, 7, 8, {}}),
              HasSubstr("4 stages need 8 chunks, found 7"));
  EXPECT_THAT(error_for(dualpipe_v, {4, 9, 8, {}}), HasSubstr("4 stages need 8 chunks, found 9"));
  EXPECT_THAT(error_for(dualpipe_v, {4, 8, 7, {}}),
              HasSubstr("needs at least 8 micro-batches, found 7; zb-v takes any number"));
  EXPECT_THAT(error_for(interleaved, {4, 8, 6, {}}),
              HasSubstr("a multiple of its 4 stages in micro-batches, found 6"));
  EXPECT_THAT(error_for(one_forward_one_backward, {4, 8, 8, {}}),
              HasSubstr("4 stages need 4 chunks, found 8; interleaved and flexible"));
  EXPECT_THAT(error_for(zero_bubble_h1, {4, 8, 8, {}}), HasSubstr("found 8; zb-v has two"));
}

TEST(PipelineShape, HasAProblemIfAndOnlyIfItIsRefused) {
  for (size_t kind = 0; kind < words_of<ScheduleKind>().size(); ++kind) {
    for (const int chunks : {0, 3, 4, 6, 8}) {
      for (const int micro_batches : {0, 6, 7, 8}) {
        for (const std::optional<int> consecutive : {std::optional<int>(), std::optional(9)}) {
          const PipelineShape shape{4, chunks, micro_batches, consecutive};
          const auto of_kind = static_cast<ScheduleKind>(kind);
          const std::string problem = shape_problem(of_kind, shape);
          if (problem.empty()) {
            EXPECT_EQ(std::ssize(generate(of_kind, shape).ranks), 4);
          } else {
            EXPECT_EQ(error_for(of_kind, shape), problem);
          }
        }
      }
    }
  }
  EXPECT_EQ(shape_problem(ScheduleKind::interleaved, {4, 8, 8, {}}), "");
}

TEST(PlacementOf, GoesDownTheStagesAndUpOrAroundThem) {
  using enum ScheduleKind;
  const auto ranks_of = [](ScheduleKind kind, int ranks, int chunks) {
    const ChunkPlacement placement = placement_of(kind, ranks, chunks);
    EXPECT_EQ(placement.ranks, ranks);
    return placement.rank_of_chunk;
  };
  for (const ScheduleKind kind : {zero_bubble_v, dualpipe_v}) {
    EXPECT_THAT(ranks_of(kind, 3, 6), ElementsAre(0, 1, 2, 2, 1, 0)) << word(kind);
  }
  for (const ScheduleKind kind : {all_forward_all_backward, interleaved, flexible}) {
    EXPECT_THAT(ranks_of(kind, 3, 6), ElementsAre(0, 1, 2, 0, 1, 2)) << word(kind);
  }
  for (const ScheduleKind kind : {one_forward_one_backward, zero_bubble_h1}) {
    EXPECT_THAT(ranks_of(kind, 3, 3), ElementsAre(0, 1, 2)) << word(kind);
  }
}

/// Returns a list in short: "r" posts a receive, "R" awaits one, "s" posts a send, "S" awaits one,
/// and actions as in schedule files.
std::string short_text(const std::vector<ScheduleEntry>& list) {
  std::string text;
  for (const ScheduleEntry& entry : list) {
    if (const auto* action = std::get_if<ChunkAction>(&entry)) {
      text +=
          fmt::format("{}{} ", "FBIW"[static_cast<size_t>(action->kind)], action -> micro_batch);
    } else {
      const auto& call = std::get<MessageEntry>(entry);
      text +=
          fmt::format("{}{} ", "srSR"[static_cast<size_t>(call.call)], call.message.micro_batch);
    }
  }
  return text;
}

TEST(PlaceMessages, PostsReceivesOneActionAheadAndAwaitsSendsThatAreDone) {
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward, {2, 2, 3, {}});
  // The gradients of micro-batch 0 show that its activations arrived.
  EXPECT_EQ(short_text(schedule.ranks[0]),
            "F0 s0 r0 F1 s1 R0 S0 B0 r1 F2 s2 r2 R1 S1 B1 R2 S2 B2 ");
  // The receive of a micro-batch is posted before the backward of the one before.
  EXPECT_EQ(short_text(schedule.ranks[1]),
            "r0 R0 F0 r1 B0 s0 R1 F1 r2 B1 s1 R2 S0 F2 B2 s2 S1 S2 ");
}

TEST(PlaceMessages, NothingIsSentBetweenChunksOfARank) {
  const PipelineSchedule single = generate(ScheduleKind::all_forward_all_backward, {1, 4, 3, {}});
  for (const ScheduleEntry& entry : single.ranks[0]) {
    EXPECT_TRUE(std::holds_alternative<ChunkAction>(entry));
  }
  // The turn of a V: the last rank sends only down to the rank before it.
  const PipelineSchedule v = generate(ScheduleKind::zero_bubble_v, {2, 4, 4, {}});
  for (const ScheduleEntry& entry : v.ranks[1]) {
    const auto* call = std::get_if<MessageEntry>(&entry);
    if (call == nullptr || call->call != MessageCall::post_send) continue;
    EXPECT_EQ(v.placement.channel(call->message).receiver, 0);
  }
}

TEST(PlaceMessages, TheMessagesOfListsThatDeadlockArePlacedToo) {
  const PipelineSchedule right = generate(ScheduleKind::flexible, {4, 8, 4, 4});
  ActionLists lists = testing::lists_of(right);
  for (auto& list : lists.ranks) std::ranges::reverse(list);
  const PipelineSchedule placed = place_messages(lists);
  EXPECT_EQ(testing::lists_of(placed), lists);
  for (size_t rank = 0; rank < right.ranks.size(); ++rank) {
    EXPECT_EQ(placed.ranks[rank].size(), right.ranks[rank].size());
  }
}

}  // namespace
}  // namespace tessera
