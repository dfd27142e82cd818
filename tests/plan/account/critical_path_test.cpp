#include "plan/account/critical_path.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "support/network_trace.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::data_group;
using testing::NetworkTrace;
using PathTimes = std::map<std::pair<PathKind, std::string>, nanoseconds>;

CriticalPath path_of(const RunTrace& trace) {
  return find_critical_path(trace, network_calls(trace));
}

PathTimes rows_of_path(const CriticalPath& path) {
  PathTimes rows;
  for (const PathRow& row : path.rows) rows[{row.kind, row.name}] = row.time;
  return rows;
}

/// Expects that a path has no gaps, and that its rows and runs have all of it.
void expect_complete(const CriticalPath& path) {
  nanoseconds in_rows{}, in_runs{};
  for (const PathRow& row : path.rows) in_rows += row.time;
  for (const PathRun& run : path.runs) {
    nanoseconds of_kinds{};
    for (const nanoseconds time : run.by_kind) of_kinds += time;
    EXPECT_EQ(of_kinds, run.time());
    in_runs += run.time();
  }
  EXPECT_EQ(in_rows, path.time());
  EXPECT_EQ(in_runs, path.time());
  for (size_t i = 1; i < path.parts.size(); ++i) {
    EXPECT_EQ(path.parts[i].start, path.parts[i - 1].end);
  }
}

/// Rank 1 computes for 6 ms before a call of 2 ms, and rank 0 for 3 ms. After it rank 0 computes
/// longer.
TEST(CriticalPath, GoesThroughTheRankThatArrivedLast) {
  NetworkTrace trace(2);
  trace.compute(0, 0, 3);
  trace.call(0, 3, 8, data_group());
  trace.compute(0, 8.5, 12, "head");
  trace.compute(1, 1, 6, "experts");
  trace.call(1, 6, 8, data_group());
  trace.compute(1, 8, 9, "head");
  const CriticalPath path = path_of(trace.run);
  expect_complete(path);
  EXPECT_EQ(path.time(), milliseconds(12));
  EXPECT_EQ(
      rows_of_path(path),
      (PathTimes{{{PathKind::idle, ""}, nanoseconds(1'500'000)},  // rank 1, and before the head
                 {{PathKind::compute, "experts"}, milliseconds(5)},
                 {{PathKind::network, "data"}, milliseconds(2)},
                 {{PathKind::compute, "head"}, nanoseconds(3'500'000)}}));
  ASSERT_EQ(path.runs.size(), 2U);
  EXPECT_EQ(path.rank_changes(), 1);
  EXPECT_EQ(path.runs[0].rank, 1);
  EXPECT_EQ(path.runs[0].end, milliseconds(6));
  EXPECT_EQ(path.runs[1].rank, 0);
  EXPECT_EQ(path.runs[1].by_kind[static_cast<size_t>(PathKind::network)], milliseconds(2));
  EXPECT_EQ(path.unmatched, 0);
}

/// What is hidden beside computing is not on the path. What is awaited is.
TEST(CriticalPath, GoesThroughTheLaneThatEndedLast) {
  NetworkTrace trace(2);
  for (const int rank : {0, 1}) {
    trace.compute(rank, 0, 2);
    trace.call(rank, 2, 4, data_group(), Lane::reductions);  // hidden
    trace.compute(rank, 2, 5, "experts");
    trace.call(rank, 5, 9, data_group(), Lane::reductions);
    trace.compute(rank, 5, 6, "norm");
    trace.compute(rank, 9, 10, "head");
  }
  const CriticalPath path = path_of(trace.run);
  expect_complete(path);
  EXPECT_EQ(path.rank_changes(), 0) << "nobody waits for another rank";
  EXPECT_EQ(rows_of_path(path), (PathTimes{{{PathKind::compute, "attention"}, milliseconds(2)},
                                           {{PathKind::compute, "experts"}, milliseconds(3)},
                                           {{PathKind::network, "data"}, milliseconds(4)},
                                           {{PathKind::compute, "head"}, milliseconds(1)}}));
  EXPECT_EQ(path.rows.front().name, "data") << "the longest first";
}

TEST(CriticalPath, GoesFromAWaitForAMessageToItsSender) {
  const BoundaryMessage forward{BoundaryKind::activations, 0, 0};
  const BoundaryMessage backward{BoundaryKind::gradients, 1, 0};
  NetworkTrace trace(2);
  trace.compute(0, 0, 4);
  trace.message(0, 4, 4, MessageCall::post_send, forward);
  trace.message(0, 4, 4, MessageCall::post_receive, backward);
  trace.message(0, 4, 10, MessageCall::wait_receive, backward);
  trace.compute(0, 10, 13);
  trace.message(1, 0, 0, MessageCall::post_receive, forward);
  trace.message(1, 0, 5, MessageCall::wait_receive, forward);
  trace.compute(1, 5, 8, "head");
  trace.message(1, 8, 8, MessageCall::post_send, backward);
  const CriticalPath path = path_of(trace.run);
  expect_complete(path);
  EXPECT_EQ(rows_of_path(path),
            (PathTimes{{{PathKind::compute, "attention"}, milliseconds(4 + 3)},
                       {{PathKind::compute, "head"}, milliseconds(3)},
                       {{PathKind::network, "pipeline"}, milliseconds(1 + 2)}}));
  ASSERT_EQ(path.runs.size(), 3U);
  EXPECT_EQ(path.runs[0].rank, 0);
  EXPECT_EQ(path.runs[1].rank, 1);
  EXPECT_EQ(path.runs[1].start, milliseconds(4));
  EXPECT_EQ(path.runs[1].end, milliseconds(8));
  EXPECT_EQ(path.runs[2].rank, 0);
}

TEST(CriticalPath, StaysOnTheRankWhereTheLastOneIsNotKnown) {
  NetworkTrace trace(2);
  trace.run.ranks_left_out = 1;
  trace.compute(0, 0, 3);
  trace.call(0, 3, 8, data_group(0, 3));
  trace.compute(1, 0, 6);
  trace.call(1, 6, 7, data_group(0, 3));
  const CriticalPath path = path_of(trace.run);
  expect_complete(path);
  EXPECT_EQ(path.rank_changes(), 0);
  EXPECT_EQ(path.unmatched, 1);
  EXPECT_EQ(rows_of_path(path), (PathTimes{{{PathKind::compute, "attention"}, milliseconds(3)},
                                           {{PathKind::network, "data"}, milliseconds(5)}}));
}

TEST(CriticalPath, HasWhatALaneDoesOnItsOwnRank) {
  NetworkTrace trace(1);
  trace.call(0, 0, 2, std::vector<TraceGroup>{}, Lane::reductions);
  EXPECT_EQ(rows_of_path(path_of(trace.run)),
            (PathTimes{{{PathKind::compute, "attention"}, milliseconds(2)}}));
}

TEST(CriticalPath, OfAStepWithoutEventsIsEmpty) {
  const CriticalPath path = path_of(NetworkTrace(2).run);
  EXPECT_TRUE(path.parts.empty());
  EXPECT_EQ(path.time(), nanoseconds(0));
  EXPECT_EQ(path.rank_changes(), 0);
}

/// Times that contradict each other, as if ranks waited for each other in a circle, have a path.
TEST(CriticalPath, ComesToAnEndWhateverTheTimesSay) {
  std::mt19937_64 random(3);
  const auto drawn = [&](uint64_t max) { return static_cast<double>(random() % max); };
  for (int round = 0; round < 300; ++round) {
    NetworkTrace trace(3);
    for (int rank = 0; rank < 3; ++rank) {
      for (const Lane lane : {Lane::compute, Lane::exchanges, Lane::reductions}) {
        for (int i = 0; i < 5; ++i) {
          const double start = drawn(6);
          const double end = start + drawn(3);
          if (lane == Lane::compute) {
            trace.compute(rank, start, end);
          } else {
            trace.call(rank, start, end, data_group(0, 3), lane);
          }
        }
      }
    }
    expect_complete(path_of(trace.run));
  }
}

}  // namespace
}  // namespace tessera
