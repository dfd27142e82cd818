#include "pipeline/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/generate.h"
#include "pipeline/place_messages.h"
#include "sample_schedules.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr BoundaryMessage kActivations{BoundaryKind::activations, 0, 0};
constexpr BoundaryMessage kGradients{BoundaryKind::gradients, 1, 0};

/// Two ranks, one micro-batch:
///   rank 0: run F0.0, post and await its send, post and await the gradients, run B0.0
///   rank 1: post and await the activations, run F1.0 B1.0, post and await the send
PipelineSchedule sample() {
  const auto call = [](MessageCall kind, const BoundaryMessage& message) {
    return ScheduleEntry(MessageEntry{kind, message});
  };
  return {
      .name = "sample",
      .micro_batches = 1,
      .placement = loop_placement(2, 1),
      .ranks = {
          {ChunkAction{ActionKind::forward, 0, 0}, call(MessageCall::post_send, kActivations),
           call(MessageCall::wait_send, kActivations), call(MessageCall::post_receive, kGradients),
           call(MessageCall::wait_receive, kGradients), ChunkAction{ActionKind::backward, 0, 0}},
          {call(MessageCall::post_receive, kActivations),
           call(MessageCall::wait_receive, kActivations), ChunkAction{ActionKind::forward, 1, 0},
           ChunkAction{ActionKind::backward, 1, 0}, call(MessageCall::post_send, kGradients),
           call(MessageCall::wait_send, kGradients)}}};
}

/// The first finding of the sample after a change.
template <typename Change>
ScheduleFinding finding_after(const Change& change) {
  PipelineSchedule schedule = sample();
  change(schedule.ranks[0], schedule.ranks[1]);
  const auto findings = validate(schedule);
  return findings.empty() ? ScheduleFinding{.reason = "accepted"} : findings.front();
}

using EntryList = std::vector<ScheduleEntry>;

TEST(PipelineValidator, AcceptsASchedule) { EXPECT_THAT(validate(sample()), IsEmpty()); }

TEST(PipelineValidator, SaysWhichActionIsWrong) {
  ScheduleFinding found = finding_after([](EntryList& list, EntryList&) { list.pop_back(); });
  EXPECT_EQ(found.text(),
            "rank 0: found no backward of chunk 0, micro-batch 0, whole or in halves, expected it "
            "once");
  found = finding_after([](EntryList&, EntryList& list) { list.push_back(list[2]); });
  EXPECT_EQ(found.kind, FindingKind::repeated);
  EXPECT_EQ(found.text(),
            "rank 1, entry 6: forward of chunk 1, micro-batch 0 is entry 2 already, expected it "
            "once");
  found = finding_after([](EntryList&, EntryList& list) { std::swap(list[2], list[3]); });
  EXPECT_EQ(found.text(),
            "rank 1, entry 2: backward of chunk 1, micro-batch 0 comes before the forward of chunk "
            "1, micro-batch 0, which it needs");
  found = finding_after([](EntryList&, EntryList& list) {
    list[3] = ChunkAction{ActionKind::weight_gradients, 1, 0};
  });
  EXPECT_EQ(found.kind, FindingKind::missing);
  EXPECT_THAT(found.reason, HasSubstr("no input gradients of chunk 1"));
  found = finding_after([](EntryList&, EntryList& list) {
    list.push_back(ChunkAction{ActionKind::weight_gradients, 1, 0});
  });
  EXPECT_EQ(found.kind, FindingKind::mixed_backward);
  found = finding_after([](EntryList&, EntryList& list) {
    list.insert(list.begin() + 3, ChunkAction{ActionKind::weight_gradients, 1, 0});
    list[4] = ChunkAction{ActionKind::input_gradients, 1, 0};
  });
  EXPECT_EQ(found.kind, FindingKind::order);
  EXPECT_THAT(found.reason, HasSubstr("before the input gradients of chunk 1"));
}

TEST(PipelineValidator, SaysWhichMessageIsWrong) {
  ScheduleFinding found =
      finding_after([](EntryList& list, EntryList&) { list.erase(list.begin() + 3); });
  EXPECT_EQ(found.kind, FindingKind::unposted);
  EXPECT_EQ(
      found.text(),
      "rank 0, entry 3: waits for a receive of the gradients of micro-batch 0 from chunk 1 to "
      "chunk 0 that no entry before it posts");
  found = finding_after([](EntryList& list, EntryList&) { list.insert(list.begin(), list[3]); });
  EXPECT_EQ(found.kind, FindingKind::posted_twice);
  EXPECT_THAT(found.text(), HasSubstr("rank 0, entry 4: posts the receive"));
  EXPECT_THAT(found.text(), HasSubstr("entry 0 has posted"));
  found = finding_after([](EntryList& list, EntryList&) { list.erase(list.begin() + 2); });
  EXPECT_EQ(found.kind, FindingKind::unawaited);
  EXPECT_EQ(found.entry, 1);
  found = finding_after([](EntryList& list, EntryList&) { std::swap(list[4], list[5]); });
  EXPECT_EQ(found.kind, FindingKind::order);
  EXPECT_THAT(found.reason, HasSubstr("needs the gradients of micro-batch 0 from chunk 1"));
  found = finding_after([](EntryList& list, EntryList&) { std::swap(list[0], list[1]); });
  EXPECT_EQ(found.kind, FindingKind::order);
  EXPECT_THAT(found.reason, HasSubstr("before they are computed"));
  found = finding_after([](EntryList&, EntryList& list) {
    list.pop_back();
    list.pop_back();
  });
  EXPECT_EQ(found.kind, FindingKind::untaken);
  EXPECT_EQ(found.rank, 0);
  EXPECT_THAT(found.reason, HasSubstr("but rank 1 posts no send of it"));
  found = finding_after([](EntryList& list, EntryList&) { list.insert(list.end(), list[2]); });
  EXPECT_EQ(found.kind, FindingKind::repeated);
}

TEST(PipelineValidator, SaysWhereAMessageDoesNotBelong) {
  ScheduleFinding found =
      finding_after([](EntryList& list, EntryList& other) { list.push_back(other[0]); });
  EXPECT_EQ(found.kind, FindingKind::wrong_rank);
  EXPECT_THAT(found.reason, HasSubstr("is for rank 1"));
  for (const BoundaryMessage message : {BoundaryMessage{BoundaryKind::gradients, 0, 0},
                                        BoundaryMessage{BoundaryKind::activations, 1, 0},
                                        BoundaryMessage{BoundaryKind::activations, 0, 1}}) {
    found = finding_after([&](EntryList& list, EntryList&) {
      list.emplace_back(MessageEntry{MessageCall::post_send, message});
    });
    EXPECT_EQ(found.kind, FindingKind::unknown);
  }
}

TEST(PipelineValidator, FindsReceivesThatWaitForEachOther) {
  // Each rank awaits what the other sends only afterwards.
  const ScheduleFinding found = finding_after([](EntryList& list, EntryList&) {
    // The activations are awaited before rank 0 sends: it waits for the gradients first.
    std::rotate(list.begin() + 1, list.begin() + 3, list.begin() + 5);
  });
  EXPECT_EQ(found.kind, FindingKind::deadlock);
  EXPECT_EQ(
      found.text(),
      "rank 0, entry 2: it waits for gradients of micro-batch 0 from chunk 1 to chunk 0; rank "
      "1, which is to post that, waits at entry 1 for activations of micro-batch 0 from chunk "
      "0 to chunk 1");
}

TEST(PipelineValidator, AMessageMovesOnlyWhenBothSidesHaveComeToIt) {
  // Rank 0 awaits its send before it posts the receive of the gradients, rank 1 awaits the send of
  // the gradients before it posts the second receive: a buffer would hide that they wait for each
  // other.
  const PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward, {2, 2, 2, {}});
  ASSERT_THAT(validate(schedule), IsEmpty());
  const auto findings = validate(testing::with_blocking_sends(schedule));
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, FindingKind::deadlock);
  EXPECT_THAT(findings[0].reason, HasSubstr("it waits that the other side takes the activations"));
}

TEST(PipelineValidator, SaysWhatIsWrongWithAPlacement) {
  PipelineSchedule schedule = sample();
  schedule.placement.ranks = 3;
  schedule.ranks.emplace_back();
  EXPECT_EQ(validate(schedule)[0].text(),
            "rank 2: it has none of the 2 chunks; take fewer ranks or more chunks");
  schedule = sample();
  schedule.placement.rank_of_chunk = {0, 1, 5};
  EXPECT_EQ(validate(schedule)[0].text(), "chunk 2 is on rank 5, expected 0 to 1");
  schedule = sample();
  schedule.ranks.pop_back();
  EXPECT_EQ(validate(schedule)[0].text(), "found 1 lists, expected one for each of 2 ranks");
  schedule = sample();
  schedule.micro_batches = 0;
  EXPECT_EQ(validate(schedule)[0].text(), "found 0 micro-batches, expected at least 1");
}

TEST(PipelineValidator, ThrowsTheFirstFindings) {
  PipelineSchedule schedule = generate(ScheduleKind::all_forward_all_backward, {2, 2, 8, {}});
  for (EntryList& list : schedule.ranks) {
    std::erase_if(list, [](const ScheduleEntry& entry) {
      const auto* action = std::get_if<ChunkAction>(&entry);
      return action != nullptr && action->kind == ActionKind::backward;
    });
  }
  const std::string message = error_of([&] { require_valid(schedule, "my.schedule"); });
  EXPECT_THAT(message, HasSubstr("my.schedule: this pipeline schedule cannot run:\n  rank 0: found "
                                 "no backward of chunk 0, micro-batch 0"));
  EXPECT_THAT(message, HasSubstr("and 11 more"));
  EXPECT_NO_THROW(require_valid(sample(), "sample"));
}

}  // namespace
}  // namespace tessera
