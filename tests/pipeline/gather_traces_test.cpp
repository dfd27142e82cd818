#include "pipeline/gather_traces.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "comm/in_process/run_mesh.h"
#include "support/sample_trace.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

/// What a rank's clock shows: `begin` when the true time is 0, and this many seconds a second.
struct RankClock {
  double begin = 0;
  double rate = 1;

  double at(double true_time) const { return begin + rate * true_time; }
  /// The exact offset of a first rank's clock that shows the true time.
  ClockOffset offset(double true_time) const {
    return {.at = at(true_time), .seconds = true_time - at(true_time)};
  }
};

/// The trace of a step from 2 s to 4 s, with a forward from 2.5 s to 3 s, which began at 1 s, as
/// seconds of a rank's clock.
OwnTrace own_trace(int rank, const RankClock& clock) {
  const auto since_begin = [&](double true_time) { return clock.at(true_time) - clock.at(1); };
  RankTrace trace{.step = {.number = 5,
                           .start = since_begin(2),
                           .duration = 2 * clock.rate,
                           .events = {{.name = "linear",
                                       .start = since_begin(2.6),
                                       .duration = 0.2 * clock.rate}}},
                  .list = {{.entry = ChunkAction{.chunk = rank},
                            .start = since_begin(2.5),
                            .duration = 0.5 * clock.rate}},
                  .stage = rank,
                  .chunks = {rank}};
  trace.step.origin.rank = rank;
  return {.trace = trace,
          .begin = clock.at(1),
          .before = clock.offset(0.5),
          .after = clock.offset(4.5)};
}

TEST(GatherTraces, PutsAllRanksOnTheFirstOnesClock) {
  const std::vector<RankClock> clocks{{0, 1}, {700, 1}, {-1e5 - 5e5, 1 + 1e-4}};
  const TemporaryFolder folder;
  const fs::path path = folder / "trace.json";
  std::array<std::string, 3> files;
  World world(3, std::chrono::seconds(20));
  run_mesh(world, Mesh({.pipeline = 3}), [&](RankGroups& groups) {
    const auto rank = static_cast<size_t>(groups.rank());
    OwnTrace own = own_trace(groups.rank(), clocks[rank]);
    own.before.uncertainty = 1e-6 * static_cast<double>(rank);
    own.after.uncertainty = 3e-6 * static_cast<double>(rank);
    const GatheredTraces gathered =
        gather_traces(own, {.name = "1f1b", .micro_batches = 1}, RankControl(groups));
    EXPECT_EQ(gathered.warning("trace.json"), "");
    files[rank] = gathered.text;
  });
  EXPECT_EQ(files[1], "");
  EXPECT_EQ(files[2], "");
  write_file(path, files[0]);
  const RunTrace run = read_trace(path);
  EXPECT_EQ(run.schedule.name, "1f1b");
  ASSERT_EQ(run.ranks.size(), 3U);
  for (const RankTrace& trace : run.ranks) {
    // The earliest step begins the axis.
    constexpr double kRounding = 3e-9;
    EXPECT_NEAR(trace.step.start, 0, kRounding);
    EXPECT_NEAR(trace.step.duration, 2, kRounding);
    EXPECT_NEAR(trace.step.events[0].start, 0.6, kRounding);
    EXPECT_NEAR(trace.step.events[0].duration, 0.2, kRounding);
    EXPECT_NEAR(trace.list[0].start, 0.5, kRounding);
    EXPECT_NEAR(trace.list[0].duration, 0.5, kRounding);
    EXPECT_DOUBLE_EQ(trace.step.clock_uncertainty, 3e-6 * trace.rank());
  }
}

TEST(GatherTraces, OfOneRankKeepsItsTimes) {
  const TemporaryFolder folder;
  const RankTrace trace = testing::sample_trace();
  write_file(folder / "trace.json", gather_traces({.trace = trace}, {"1f1b", 1}, {}).text);
  const RunTrace run = read_trace(folder / "trace.json");
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_NEAR(run.ranks[0].step.start, 0, 1e-9);
  EXPECT_NEAR(run.ranks[0].step.events[1].start, 0.001, 1e-9);
}

/// Gathers the traces of four ranks, which are two pipelines of two stages, with a limit.
GatheredTraces gathered_within(int64_t max_bytes) {
  GatheredTraces result;
  World world(4, std::chrono::seconds(20));
  run_mesh(world, Mesh({.pipeline = 2, .data = {2}}), [&](RankGroups& groups) {
    const int rank = groups.rank();
    RankTrace trace = testing::sample_run().ranks[static_cast<size_t>(rank % 2)];
    trace.step.origin.rank = rank;
    trace.pipeline = rank - rank % 2;
    const GatheredTraces gathered =
        gather_traces({.trace = trace}, {"1f1b", 1}, RankControl(groups), max_bytes);
    if (rank == 0) {
      result = gathered;
    } else {
      EXPECT_EQ(gathered.text + gathered.warning("trace.json"), "");
    }
  });
  return result;
}

TEST(GatherTraces, LeaveOutTheLastRanksOfALargeRun) {
  const TemporaryFolder folder;
  const fs::path path = folder / "trace.json";
  const auto read = [&](const GatheredTraces& gathered) {
    write_file(path, gathered.text);
    return read_trace(path);
  };
  const GatheredTraces all = gathered_within(kMaxGatheredBytes);
  EXPECT_EQ(all.warning("trace.json"), "");
  const RunTrace whole = read(all);
  EXPECT_EQ(whole.ranks.size(), 4U);
  EXPECT_EQ(whole.ranks_left_out, 0);
  std::vector<int64_t> sizes;
  for (const RankTrace& rank : whole.ranks) {
    const auto [events, entry] = rank_trace_text(rank);
    sizes.push_back(std::ssize(events) + std::ssize(entry));
  }
  int64_t limit = 0;
  for (const size_t written : {1U, 2U, 3U}) {
    limit += sizes[written - 1];
    const GatheredTraces some = gathered_within(limit);
    const RunTrace run = read(some);
    ASSERT_EQ(run.ranks.size(), written);
    EXPECT_EQ(run.ranks_left_out, 4 - static_cast<int>(written));
    // A rank's messages are there even if the rank at their other end is not.
    for (size_t rank = 0; rank < written; ++rank) EXPECT_EQ(run.ranks[rank], whole.ranks[rank]);
    EXPECT_THAT(some.warning("step/of-run.json"),
                ::testing::StartsWith(
                    fmt::format("step/of-run.json has {} of 4 ranks: all would take ", written)));
    // One byte less, and the last of these ranks is left out, unless it is the first of the run.
    EXPECT_EQ(read(gathered_within(limit - 1)).ranks.size(), std::max<size_t>(written - 1, 1));
  }
}

}  // namespace
}  // namespace tessera
