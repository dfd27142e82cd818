#include "plan/account/run_account.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/account/step_account.h"
#include "support/network_trace.h"
#include "support/sample_trace.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// The actions are between 1 and 9.5 ms. The first stage works for 5 ms of these, the second for 3.
TEST(RunAccount, ComparesTheRanksBetweenTheFirstActionAndTheLast) {
  const RunAccount account = account_for_run(testing::sample_run());
  EXPECT_EQ(account.schedule.name, "1f1b");
  EXPECT_EQ(account.stages, 2);
  EXPECT_NEAR(account.seconds, 8.5e-3, 1e-12);
  ASSERT_TRUE(account.bubble);
  EXPECT_NEAR(*account.bubble, (3.5 + 5.5) / 8, 1e-12);
  ASSERT_EQ(account.ranks.size(), 2U);
  EXPECT_NEAR(account.ranks[0].busy_seconds, 5e-3, 1e-12);
  EXPECT_NEAR(account.ranks[0].idle_seconds, 3.5e-3, 1e-12);
  EXPECT_NEAR(account.ranks[0].wait_seconds, 3.3e-3, 1e-12) << "not the wait after the last action";
  EXPECT_EQ(account.ranks[1].stage, 1);
  EXPECT_NEAR(account.ranks[1].idle_seconds, 5.5e-3, 1e-12);
  EXPECT_NEAR(account.ranks[1].wait_seconds, 2.3e-3 + 0.2e-3, 1e-12)
      << "not the wait before the first action";
}

TEST(RunAccount, OfRanksWithoutActionsHasNoBubble) {
  RunTrace run = testing::sample_run();
  for (RankTrace& rank : run.ranks) rank.list.clear();
  const RunAccount account = account_for_run(run);
  EXPECT_EQ(account.seconds, 0);
  EXPECT_EQ(account.bubble, 0);
}

/// Two ranks that do not begin at the same time are no pipeline.
TEST(RunAccount, OfOneStageHasNoBubble) {
  RunTrace run = testing::sample_run();
  run.ranks[1].stage = 0;
  StepAccount account = account_for(run.ranks[0], {});
  account.run = account_for_run(run);
  EXPECT_EQ(account.run->bubble, std::nullopt);
  EXPECT_NEAR(account.run->ranks[1].idle_seconds, 5.5e-3, 1e-12);
  EXPECT_THAT(account_text(account),
              AllOf(HasSubstr("passes of 2 ranks: 8.50 ms; stages: 1, schedule: 1f1b, "
                              "micro-batches: 1\n"),
                    Not(HasSubstr("bubble"))));
  EXPECT_TRUE(Json::parse(account_json(account))["run"]["bubble"].is_null());
}

TEST(RunAccount, SaysThatRanksAreLeftOut) {
  RunTrace run = testing::sample_run();
  run.ranks_left_out = 6;
  StepAccount account = account_for(run.ranks[0], {});
  account.run = account_for_run(run);
  EXPECT_THAT(account_text(account),
              HasSubstr("passes of 2 of 8 ranks: 8.50 ms; stages: at least 2, schedule: 1f1b"));
  EXPECT_EQ(Json::parse(account_json(account))["run"]["ranks_left_out"], 6);
}

TEST(RunAccount, ShowsTheCallsAndTheCriticalPath) {
  testing::NetworkTrace trace(2);
  trace.compute(0, 0, 4);
  trace.call(0, 2, 10, testing::data_group());
  trace.compute(1, 0, 6, "experts");
  trace.call(1, 6, 10, testing::data_group());
  trace.run.ranks[1].step.clock_uncertainty = 3e-6;
  StepAccount account = account_for(trace.run.ranks[0], {});
  account.run = account_for_run(trace.run);
  const std::string text = account_text(account);
  EXPECT_THAT(text,
              AllOf(HasSubstr("calls of other ranks, the mean of the ranks; an arrival is "
                              "known to 3 us\n"
                              "axes  calls  MB sent  ms    hidden ms  exposed ms  waiting ms  "
                              "transfer ms\n"
                              "data    1.0     0.00  6.00       1.00        5.00        1.00  "
                              "       4.00\n"
                              "all     1.0     0.00  6.00       1.00        5.00        1.00  "
                              "       4.00\n")));
  EXPECT_THAT(text, HasSubstr("critical path: 10.00 ms; changes of ranks: 1\n"
                              "on the path  of       ms    share\n"
                              "compute      experts  6.00  60.0 %\n"
                              "network      data     4.00  40.0 %\n"));
  EXPECT_THAT(text, HasSubstr("its runs on one rank\n"
                              "rank  from ms  to ms  ms    compute ms  network ms  idle ms\n"
                              "   1     0.00   6.00  6.00        6.00        0.00     0.00\n"
                              "   0     6.00  10.00  4.00        0.00        4.00     0.00\n"));
  const Json run = Json::parse(account_json(account))["run"];
  EXPECT_NEAR(run["network"]["ranks"][0]["axes"][0]["waiting_seconds"].get<double>(), 2e-3, 1e-12);
  EXPECT_EQ(run["network"]["ranks"][0]["axes"][1]["axes"], "all");
  EXPECT_TRUE(run["network"]["calls_of_unknown_last_rank"].empty());
  EXPECT_EQ(run["critical_path"]["rank_changes"], 1);
  EXPECT_NEAR(run["critical_path"]["runs"][1]["network_seconds"].get<double>(), 4e-3, 1e-12);
}

/// Of twelve runs, and that of the last call, the longest are shown in the order of time.
TEST(RunAccount, ShowsTenRunsOfAPathAndSaysWhatIsNotKnown) {
  testing::NetworkTrace trace(2);
  double time = 0;
  for (int i = 0; i < 12; ++i) {
    const double end = time + 1 + (i < 2 ? 0 : i);
    trace.compute(i % 2, time, end);
    trace.call(i % 2, end, end + 0.1, testing::data_group());
    trace.call(1 - i % 2, time, end + 0.1, testing::data_group());
    time = end + 0.1;
  }
  StepAccount account = account_for(trace.run.ranks[0], {});
  account.run = account_for_run(trace.run);
  EXPECT_EQ(account.run->path.runs.size(), 13U);
  EXPECT_THAT(account_text(account), AllOf(HasSubstr("its 10 longest runs on one rank"),
                                           Not(HasSubstr("   0     0.00    1.10"))));
  trace.call(0, time, time + 1, testing::data_group());
  account.run = account_for_run(trace.run);
  EXPECT_THAT(account_text(account),
              AllOf(HasSubstr("calls whose last rank is not known: 25; the ranks of their groups "
                              "made different numbers of calls\n"),
                    HasSubstr("not told apart ms\n"), HasSubstr("it stays on their rank\n")));
}

TEST(RunAccount, IsShownWithTheStepOfARank) {
  RunTrace run = testing::sample_run();
  StepAccount account = account_for(run.ranks[1], {});
  EXPECT_THAT(account_text(account), Not(HasSubstr("bubble")));
  EXPECT_FALSE(Json::parse(account_json(account)).contains("run"));
  account.run = account_for_run(run);
  EXPECT_THAT(account_text(account),
              AllOf(HasSubstr("step 7 on rank 1: 10.00 ms"),
                    HasSubstr("passes of 2 ranks: 8.50 ms; stages: 2, schedule: 1f1b, "
                              "micro-batches: 1; measured bubble: 112.5 %"),
                    HasSubstr("   1      1     3.00     5.50      2.50       183.3 %"),
                    Not(HasSubstr("clocks"))));
  const Json json = Json::parse(account_json(account));
  EXPECT_EQ(json["rank"], 1);
  EXPECT_NEAR(json["run"]["bubble"].get<double>(), 1.125, 1e-12);
  EXPECT_NEAR(json["run"]["ranks"][0]["wait_seconds"].get<double>(), 3.3e-3, 1e-12);
  run.ranks[1].step.clock_uncertainty = 25e-6;
  account.run = account_for_run(run);
  EXPECT_THAT(account_text(account), HasSubstr("the ranks' clocks agree to 25 us"));
}

}  // namespace
}  // namespace tessera
