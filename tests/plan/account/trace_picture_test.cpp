#include "plan/account/trace_picture.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/account/trace_rows.h"
#include "support/error_of.h"
#include "support/network_trace.h"
#include "support/xml.h"

namespace tessera {
namespace {

using std::chrono::nanoseconds;
using ::testing::AllOf;
using ::testing::Contains;
using testing::data_group;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NetworkTrace;
using ::testing::Not;
using ::testing::SizeIs;
using testing::XmlElement;

/// A box of a picture, as "x y width colour".
std::string text_of(const XmlElement& box) {
  const auto at = [&](const char* key) { return box.attributes.at(key); };
  return at("x") + " " + at("y") + " " + at("width") + " " + at("fill");
}

/// Returns the boxes of the rows in a picture, without the grounds of the rows.
std::vector<XmlElement> boxes_of(const std::string& svg) {
  std::vector<XmlElement> boxes;
  for (const XmlElement& element : testing::parse_xml(svg)) {
    if (element.name == "rect" && element.attributes.at("height") == "18" &&
        element.attributes.at("fill") != "#f2f2f2") {
      boxes.push_back(element);
    }
  }
  return boxes;
}

std::vector<std::string> box_texts(const std::string& svg) {
  std::vector<std::string> texts;
  for (const XmlElement& box : boxes_of(svg)) texts.push_back(text_of(box));
  return texts;
}

std::vector<std::string> texts_in(const std::string& svg) {
  std::vector<std::string> texts;
  for (const XmlElement& element : testing::parse_xml(svg)) {
    if (element.name == "text") texts.push_back(element.text);
  }
  return texts;
}

/// Rows are 880 pixels wide, so that a pixel is a millisecond.
constexpr double kMillisecondAPixel = 0.88;

/// Rank 0 computes for 300 ms and then waits for a sum, to which rank 1 comes 50 ms later. Its
/// update waits for a message.
RunTrace sample_ranks() {
  NetworkTrace trace(2);
  trace.compute(0, 0, 100, "attention", "forward", 3);
  trace.compute(0, 100, 150, "attention", "forward", 3);
  trace.compute(0, 150, 250, "head");
  trace.compute(0, 250, 300, "attention", "backward", 3);
  trace.call(0, 300, 500, data_group(), Lane::reductions);
  trace.compute(0, 520, 560, "optimizer", "update");
  trace.compute(1, 0, 350, "attention", "recompute");
  trace.call(1, 350, 500, data_group(), Lane::reductions);
  trace.compute(1, 500, 800, "optimizer", "update");
  return trace.run;
}

TEST(TracePicture, HasBoxesWhereLanesWork) {
  const std::string svg = draw(sample_ranks(), {.to = kMillisecondAPixel}, "trace.json");
  EXPECT_THAT(box_texts(svg),
              ElementsAre("94 68 150 #add3f0", "244 68 100 #add3f0", "344 68 50 #96dcc3",
                          "614 68 40 #fade96",                          // rank 0 computes
                          "394 90 50 #b3d5e8", "444 90 150 #0072b2",    // waits, and transfers
                          "94 144 350 #56a0dc", "594 144 300 #fade96",  // rank 1 computes
                          "444 166 150 #0072b2"));
  const std::vector<std::string> texts = texts_in(svg);
  for (const char* text :
       {"step 1: 800 ms; exposed communication: 175 ms (21.9 %), the mean of 2 ranks",
        "rank 0: stage 0",
        "rank 1: stage 0",
        "exposed 200 ms",
        "exposed 150 ms",
        "compute",
        "reductions",
        "attention 3",
        "head",
        "3",
        "optimizer",
        "1000 B",
        "forward",
        "recompute",
        "backward",
        "update",
        "numbers: layers",
        "ms",
        "0",
        "100",
        "800",
        "data: waiting for the last rank, transferring"}) {
    EXPECT_THAT(texts, Contains(text));
  }
  EXPECT_THAT(texts, Not(Contains(HasSubstr("merged"))));
}

TEST(TracePicture, OfEqualTracesIsTheSame) {
  EXPECT_EQ(draw(sample_ranks(), {}, "a.json"), draw(sample_ranks(), {}, "b.json"));
}

TEST(TracePicture, ShowsTheRanksAndTheTimeOfItsView) {
  const RunTrace trace = sample_ranks();
  // 400 ms from 200 ms on, so that a millisecond has 2.2 pixels.
  const std::string svg = draw(trace, {.ranks = {1}, .from = 0.2, .to = 0.6}, "trace.json");
  EXPECT_THAT(box_texts(svg),
              ElementsAre("94 68 330 #56a0dc", "754 68 220 #fade96", "424 90 330 #0072b2"));
  EXPECT_THAT(texts_in(svg),
              AllOf(Not(Contains(HasSubstr("rank 0"))), Contains("200"), Contains("600"),
                    Contains("step 1: 800 ms; exposed communication: 150 ms (18.8 %)")));
}

/// Times count from the earliest start, as in files of version 2 too.
TEST(TracePicture, BeginsWithTheStep) {
  RunTrace trace = sample_ranks();
  for (RankTrace& rank : trace.ranks) {
    rank.step.start += 5;
    for (TraceEvent& event : rank.step.events) event.start += 5;
  }
  EXPECT_EQ(draw(trace, {}, "trace.json"), draw(sample_ranks(), {}, "trace.json"));
}

TEST(TracePicture, HasMessagesInOneRow) {
  const BoundaryMessage activations{BoundaryKind::activations, 0, 0};
  const BoundaryMessage gradients{BoundaryKind::gradients, 1, 0};
  NetworkTrace trace(2);
  trace.message(0, 100, 101, MessageCall::post_send, activations, 500);
  trace.message(0, 110, 300, MessageCall::wait_receive, gradients);
  trace.message(0, 300, 310, MessageCall::wait_send, activations);
  trace.message(1, 5, 6, MessageCall::post_receive, activations);
  trace.message(1, 10, 120, MessageCall::wait_receive, activations);
  trace.message(1, 250, 251, MessageCall::post_send, gradients);
  const std::string svg = draw(trace.run, {.to = kMillisecondAPixel}, "trace.json");
  EXPECT_THAT(box_texts(svg),
              ElementsAre("204 90 140 #b3d5e8", "344 90 50 #0072b2", "394 90 10 #0072b2",
                          "104 166 90 #b3d5e8", "194 166 20 #0072b2"));
  EXPECT_THAT(texts_in(svg), Contains("messages"));
}

TEST(TracePicture, TellsCallsWhoseLastRankIsNotKnown) {
  NetworkTrace trace(1);
  trace.call(0, 100, 300, data_group());
  trace.run.ranks_left_out = 1;
  const std::string svg = draw(trace.run, {.to = kMillisecondAPixel}, "trace.json");
  EXPECT_THAT(box_texts(svg), ElementsAre("194 90 200 #66aad1"));
  EXPECT_THAT(texts_in(svg), Contains("data: last rank not known"));
}

TEST(TracePicture, ShowsWhatIsTooNarrow) {
  NetworkTrace trace(1);
  trace.compute(0, 0, 100);
  trace.compute(0, 100, 100.001, "optimizer", "update");
  trace.compute(0, 200, 880);
  const std::string svg = draw(trace.run, {}, "trace.json");
  EXPECT_THAT(box_texts(svg),
              ElementsAre("94 68 100 #add3f0", "294 68 680 #add3f0", "194 68 0.5 #fade96"));
  EXPECT_THAT(texts_in(svg), Contains(HasSubstr("merged")));
}

TEST(TracePicture, OfManyEventsHasFewBoxes) {
  NetworkTrace trace(1);
  constexpr int kEvents = 20000;
  for (int i = 0; i < kEvents; ++i) {
    trace.compute(0, 0.044 * i, 0.044 * (i + 1), "head", i % 4 == 0 ? "forward" : "backward");
  }
  const std::string svg = draw(trace.run, {}, "trace.json");
  double width = 0;
  for (const XmlElement& box : boxes_of(svg)) {
    width += std::stod(box.attributes.at("width"));
    EXPECT_EQ(box.attributes.at("fill"), "#96dcc3") << "most of each time";
  }
  EXPECT_LE(boxes_of(svg).size(), 2 * 880U);
  EXPECT_NEAR(width, 880, 880 * 0.1) << "but for the rounding of boxes to a tenth of a pixel";
}

TraceBox box(int64_t start, int64_t end, const std::string& pass, int layer = 0) {
  return {.start = nanoseconds(start),
          .end = nanoseconds(end),
          .name = pass,
          .block = "attention",
          .layer = layer};
}

/// Returns boxes as "start-end pass layer".
std::vector<std::string> merged_texts(const std::vector<TraceBox>& boxes) {
  std::vector<std::string> texts;
  for (const TraceBox& box : merged(boxes, nanoseconds(10))) {
    texts.push_back(
        fmt::format("{}-{} {} {}", box.start.count(), box.end.count(), box.name, box.layer));
  }
  return texts;
}

TEST(TraceRows, JoinsOperationsOfALayer) {
  EXPECT_THAT(
      merged_texts({box(0, 20, "forward"), box(29, 40, "forward"), box(50, 70, "forward"),
                    box(70, 90, "forward", 1), box(90, 110, "backward", 1)}),
      ElementsAre("0-40 forward 0", "50-70 forward 0", "70-90 forward 1", "90-110 backward 1"));
}

TEST(TraceRows, MergesNarrowBoxesThatFollowEachOther) {
  EXPECT_THAT(
      merged_texts({box(0, 20, "forward"), box(20, 23, "backward"), box(23, 28, "forward", 1),
                    box(28, 33, "backward", 2), box(33, 34, "update"), box(34, 60, "forward"),
                    box(70, 71, "forward"), box(81, 82, "update")}),
      ElementsAre("0-20 forward 0", "20-33 backward -1", "33-34 update 0", "34-60 forward 0",
                  "70-71 forward 0", "81-82 update 0"));
  EXPECT_THAT(merged_texts({}), IsEmpty());
}

TEST(TracePicture, RefusesWhatATraceDoesNotShow) {
  const auto error = [](const RunTrace& trace, const TraceView& view) {
    return error_of([&] { draw(trace, view, "run/trace.json"); });
  };
  RunTrace trace = sample_ranks();
  EXPECT_EQ(error(trace, {.ranks = {0, 2}}),
            "--ranks names rank 2, which run/trace.json lacks; it has 2 ranks from 0 to 1: name "
            "some of them");
  EXPECT_THAT(error(trace, {.from = 0.5, .to = 0.5}),
              AllOf(HasSubstr("--from is 0.5 s and --to 0.5 s"), HasSubstr("a smaller --from")));
  EXPECT_THAT(error(trace, {.from = 0.8}),
              AllOf(HasSubstr("--from is 0.8 s"), HasSubstr("run/trace.json takes 0.8 s")));
  EXPECT_THAT(error(trace, {.from = 0.5, .to = 0.5 + 1e-8}), HasSubstr("a millionth"));
  EXPECT_THAT(error(trace, {.to = 1e-9}), HasSubstr("at least 2 ns"));
  EXPECT_THAT(error(NetworkTrace(1).run, {}), HasSubstr("run/trace.json takes no time"));
  trace.has_groups = false;
  EXPECT_THAT(error(trace, {}), AllOf(HasSubstr("run/trace.json is a trace of an earlier version"),
                                      HasSubstr("bench schedule --trace` write a new one")));
  for (RankTrace& rank : trace.ranks) {
    std::erase_if(rank.step.events,
                  [](const TraceEvent& event) { return event.lane != Lane::compute; });
  }
  EXPECT_THAT(boxes_of(draw(trace, {}, "run/trace.json")), SizeIs(6))
      << "which ranks are called is not needed";
}

}  // namespace
}  // namespace tessera
