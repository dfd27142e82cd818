#include "pipeline/schedule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sample_schedules.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSample =
    "# a comment\n"
    "tessera pipeline schedule 1\n"
    "\n"
    "micro-batches 2   # of a step\n"
    "chunks 0 1\n"
    "rank 0: F0.0 F0.1\n"
    "rank 0: B0.0 I0.1 W0.1\n"
    "rank 1: F1.0 B1.0 F1.1 B1.1\n";

TEST(ScheduleFile, IsReadAsItIsDocumented) {
  const ActionLists lists = parse_schedule(kSample, "sample");
  EXPECT_EQ(lists.micro_batches, 2);
  EXPECT_EQ(lists.placement, loop_placement(2, 1));
  ASSERT_EQ(lists.ranks.size(), 2U);
  EXPECT_EQ(lists.ranks[0], (std::vector<ChunkAction>{{ActionKind::forward, 0, 0},
                                                      {ActionKind::forward, 0, 1},
                                                      {ActionKind::backward, 0, 0},
                                                      {ActionKind::input_gradients, 0, 1},
                                                      {ActionKind::weight_gradients, 0, 1}}));
  EXPECT_EQ(lists.ranks[1].size(), 4U);
}

RC_GTEST_PROP(ScheduleFile, IsReadAsItWasWritten, ()) {
  const ScheduleKind kind = testing::random_kind();
  const ActionLists lists = testing::lists_of(generate(kind, testing::random_shape(kind, 5, 6)));
  RC_ASSERT(parse_schedule(schedule_text(lists), lists.name) == lists);
}

/// Any text is read or refused with its line.
RC_GTEST_PROP(ScheduleFile, AnyTextIsReadOrRefused, ()) {
  std::string text = kSample;
  const int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, text.size());
    text[at] = *rc::gen::element('0', '9', '.', ' ', '\n', ':', '#', '-', 'F', 'r', '\x80', '\0');
  }
  try {
    parse_schedule(text, "text");
  } catch (const Error& error) {
    RC_ASSERT(std::string(error.what()).starts_with("text, line "));
  }
}

/// The error about the sample, with one text of it replaced by another.
std::string error_with(const std::string& old, const std::string& fresh) {
  std::string text = kSample;
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  text.replace(at, old.size(), fresh);
  return error_of([&] { parse_schedule(text, "my.schedule"); });
}

TEST(ScheduleFile, AFaultIsNamedAtItsPlace) {
  EXPECT_EQ(error_with("schedule 1", "schedule 2"),
            "my.schedule, line 2: found 'tessera pipeline schedule 2', expected a line that begins "
            "with \"tessera pipeline schedule 1\"");
  EXPECT_THAT(error_with("schedule 1", "schedule 1 2"), HasSubstr("line 2: found"));
  EXPECT_THAT(error_with("micro-batches 2", "batches 2"),
              HasSubstr("line 4: found 'batches 2   ', expected a line that begins with "
                        "\"micro-batches\""));
  EXPECT_THAT(
      error_with("micro-batches 2", "micro-batches"),
      HasSubstr("line 4: found the end of the line, expected the number of micro-batches, a "
                "whole number from 1"));
  EXPECT_THAT(error_with("micro-batches 2", "micro-batches 0"), HasSubstr("line 4: found '0'"));
  EXPECT_THAT(error_with("micro-batches 2", "micro-batches -2"), HasSubstr("found '-2'"));
  EXPECT_THAT(error_with("micro-batches 2", "micro-batches 2x"), HasSubstr("found '2x'"));
  EXPECT_THAT(error_with("micro-batches 2", "micro-batches 99999999999"),
              HasSubstr("found '99999999999'"));
  EXPECT_THAT(error_with("micro-batches 2", "micro-batches 2 3"),
              HasSubstr("line 4: found '3', expected the end of the line"));
  EXPECT_THAT(error_with("chunks 0 1", "chunks"), HasSubstr("line 5: found no chunk"));
  EXPECT_THAT(error_with("chunks 0 1", "chunks 0 x"), HasSubstr("line 5: found 'x'"));
  EXPECT_THAT(error_with("chunks 0 1", "chunks 0 2"),
              HasSubstr("line 5: found rank 2 as the last of 2 chunks, expected a chunk for every "
                        "rank from 0 on"));
  EXPECT_THAT(error_with("chunks 0 1", "chunks 0 0 2"), HasSubstr("a chunk for every rank"));
  EXPECT_THAT(error_with("rank 1", "rang 1"),
              HasSubstr("line 8: found 'rang 1: F1.0 B1.0 F1.1 B1.1', expected a line that begins "
                        "with \"rank\""));
  EXPECT_THAT(error_with("rank 1:", "rank 1"), HasSubstr("expected \"rank 1: \" and its actions"));
  EXPECT_THAT(error_with("rank 1:", "rank 2:"), HasSubstr("expected \"rank 1: \" and its actions"));
  EXPECT_THAT(
      error_with("B1.1\n", "B1.1\nrank 0: F0.0\n"),
      HasSubstr("line 9: found 'rank 0: F0.0', expected the end of the file, after rank 1"));
  EXPECT_THAT(error_with("rank 1: F1.0 B1.0 F1.1 B1.1\n", ""),
              HasSubstr("found lists of 1 ranks, expected one for each of the 2 ranks"));
  for (const char* action : {"X0.1", "F0", "F.1", "F0.", "F0.1.2", "F-1.0", "f0.1", "0.1"}) {
    EXPECT_THAT(error_with("F0.1", action),
                HasSubstr(std::string("line 6: found '") + action + "', expected an action"));
  }
  EXPECT_THAT(error_with("F0.1", "F2.1"), HasSubstr("found 'F2.1', expected a chunk from 0 to 1"));
  EXPECT_THAT(error_with("F0.1", "F0.2"),
              HasSubstr("line 6: found 'F0.2', expected a micro-batch from 0 to 1"));
  EXPECT_THAT(error_of([] { parse_schedule("", "empty"); }),
              HasSubstr("empty, line 0: found the end of the file"));
}

TEST(ScheduleFile, IsRefusedIfItsListsCannotRun) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "lists";
  write_file(path, kSample);
  EXPECT_EQ(read_schedule(path, 2, 2).name, path.string());
  EXPECT_THAT(error_of([&] { read_schedule(path, 4, 2); }),
              HasSubstr("found a schedule for 2 stages and 2 micro-batches, expected one for 4 "
                        "stages and 2 micro-batches"));
  EXPECT_THAT(error_of([&] { read_schedule(path, 2, 3); }), HasSubstr("and 3 micro-batches"));
  EXPECT_EQ(read_schedule(path, 2, std::nullopt).micro_batches, 2);
  EXPECT_THAT(error_of([&] { read_schedule(path, 4, std::nullopt); }),
              HasSubstr("found a schedule for 2 stages, expected one for 4 stages"));
  std::string text = kSample;
  text.replace(text.find("F0.1"), 4, "F0.0");
  write_file(path, text);
  EXPECT_THAT(error_of([&] { read_schedule(path, 2, 2); }),
              HasSubstr(path.string() + ": this pipeline schedule cannot run:\n  rank 0, entry"));
  EXPECT_THAT(error_of([&] { read_schedule(folder.path() / "none", 2, 2); }), HasSubstr("none"));
}

}  // namespace
}  // namespace tessera
