// Training by several processes that meet by TCP, without MPI.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "cli/process_runs.h"
#include "comm/tcp/tcp_listener.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::occurrences;

class TcpProcessesTest : public testing::ProcessRuns {
 protected:
  TcpProcessesTest() { by_tcp_ = true; }

  /// A process with these variables in its environment.
  std::unique_ptr<testing::Subprocess> start_one(
      const std::map<std::string, std::string>& environment, const Arguments& arguments,
      const char* output) const {
    Arguments all{"/usr/bin/env"};
    for (const auto& [name, value] : environment) all.push_back(name + "=" + value);
    return std::make_unique<testing::Subprocess>(joined(joined(all, {TESSERA_PROGRAM}), arguments),
                                                 folder_ / output);
  }
  /// An address of this machine that nobody listens at.
  static std::string free_address() {
    const TcpListener any({"127.0.0.1", 0});
    return fmt::format("localhost:{}", any.port());
  }
  /// What trains until somebody ends it.
  Arguments long_training(const std::string& name, const Arguments& more = {}) const {
    return training(name,
                    joined(joined(set("train.steps", "100000"), set("train.stop_after", "100000")),
                           joined(set("checkpoint.every", "5"), more)));
  }
};

TEST_F(TcpProcessesTest, GiveTheBitsOfThreads) {
  Arguments layout = joined(set("parallel.tensor", "2"), set("parallel.expert", "4"));
  layout = joined(layout, set("parallel.expert_exchange", "\"all_to_all\""));
  const Result threads = run(training("threads", joined(layout, {"--ranks", "4"})));
  ASSERT_EQ(threads.status, 0) << threads.output;
  const Result processes = run_processes(4, training("processes", layout));
  ASSERT_EQ(processes.status, 0) << processes.output;
  EXPECT_THAT(processes.output, HasSubstr("4 ranks (2 tensor x 2 data, 4 expert)"));
  EXPECT_EQ(occurrences(processes.output, "done: step 4"), 1U) << "one log";
  expect_same_run("threads", "processes", 8);
  const Arguments evaluate{"eval", "--checkpoint", checkpoint("threads").string()};
  const Result evaluation = run_processes(2, evaluate);
  EXPECT_EQ(evaluation.status, 0) << evaluation.output;
  EXPECT_EQ(evaluation.output, run(joined(evaluate, {"--ranks", "2"})).output);
}

/// Each process has an emulated device of its own. Its links go through the first process too.
TEST_F(TcpProcessesTest, OnDevicesGiveTheBitsOfThreads) {
  expect_bits_of_threads_on_devices("experts",
                                    {"parallel.expert=2", "parallel.expert_exchange='all_gather'"});
  expect_bits_of_threads_on_devices("muon", cut_by_muon());
}

TEST_F(TcpProcessesTest, InPipelinesGiveTheBitsOfThreads) { expect_bits_of_threads_in_pipelines(); }

TEST_F(TcpProcessesTest, TraceAStepIntoOneFile) { expect_trace_of_processes(); }

/// The second process has a clock of its own, as on another machine.
TEST_F(TcpProcessesTest, TraceAStepOnTheFirstOnesClock) {
  constexpr int kSecondsApart = 5000;
  const std::string seconds = std::to_string(kSecondsApart);
  testing::Subprocess clock({"unshare", "--time", "--monotonic", seconds, "true"},
                            folder_ / "clock.txt");
  if (clock.wait() != 0) GTEST_SKIP() << "this machine allows no other clock: " << clock.output();
  const Arguments launcher{TESSERA_RUN_PROCESSES,
                           "--tcp",
                           "2",
                           "/bin/sh",
                           "-c",
                           "[ $TESSERA_RANK = 0 ] && exec \"$@\"\n"
                           "exec unshare --time --monotonic " +
                               seconds + " \"$@\"",
                           "sh",
                           TESSERA_PROGRAM};
  testing::Subprocess processes(joined(launcher, traced_pipeline()), folder_ / "processes.txt");
  ASSERT_EQ(processes.wait(), 0) << processes.output();
  const RunTrace trace = trace_of_pipeline();
  const StepTrace& first = trace.ranks[0].step;
  const StepTrace& second = trace.ranks[1].step;
  EXPECT_EQ(first.clock_uncertainty, 0);
  EXPECT_GT(second.clock_uncertainty, 0);
  // Each of them takes messages of the other, so their steps overlap, as far as the clocks tell.
  EXPECT_LT(second.start, first.start + first.duration + second.clock_uncertainty);
  EXPECT_LT(first.start, second.start + second.duration + second.clock_uncertainty);
  // What the clocks tell is far less than what they are apart.
  EXPECT_LT(first.duration + second.duration + second.clock_uncertainty, kSecondsApart / 10);
}

/// The stages wait for messages of each other, and all for the first.
TEST_F(TcpProcessesTest, AStageThatIsKilledOrStoppedIsNamed) {
  for (const bool stops : {false, true}) {
    for (const size_t victim : {0U, 1U, 2U}) {
      SCOPED_TRACE(fmt::format("stage {} is {}", victim, stops ? "stopped" : "killed"));
      const auto [started, stages] = start_pipeline(fmt::format("{}-{}", stops, victim));
      ASSERT_EQ(stages.size(), 3U) << started->output();
      ::kill(stages[victim], stops ? SIGSTOP : SIGKILL);
      const std::string words = victim == 0 ? (stops ? "it has not answered for "
                                                     : "through which the ranks meet, is lost")
                                : stops     ? "does not answer: it is stopped, or gone"
                                        : fmt::format("rank {} failed: its process on ", victim);
      for (int i = 0; i < 600 && started->output().find(words) == std::string::npos; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      ::kill(stages[victim], SIGKILL);
      EXPECT_NE(started->wait(), 0);
      EXPECT_THAT(started->output(), HasSubstr(words));
      if (stops && victim != 0) {
        EXPECT_THAT(started->output(), HasSubstr(fmt::format("ank {} (", victim)));
      }
    }
  }
}

/// The cores that single threads of a process are bound to.
std::set<std::string> bound_cores(pid_t process) {
  std::set<std::string> cores;
  std::error_code gone;
  for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      const std::string key = "Cpus_allowed_list:\t";
      if (!line.starts_with(key)) continue;
      const std::string list = line.substr(key.size());
      if (list.find_first_of(",-") == std::string::npos) cores.insert(list);
    }
  }
  return cores;
}

/// Two processes that may use the same two cores, and have run.threads of them together.
TEST_F(TcpProcessesTest, ComputeOnCoresOfTheirOwn) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t two;
  CPU_ZERO(&two);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &two);
  }
  if (CPU_COUNT(&two) < 2) GTEST_SKIP() << "there is one core";
  ASSERT_EQ(::sched_setaffinity(0, sizeof two, &two), 0);
  const auto started = start(2, long_training("bound", set("run.threads", "2")));
  ::sched_setaffinity(0, sizeof before, &before);
  await(folder_ / "bound" / "metrics.jsonl");
  const std::vector<pid_t> ranks = processes_of(*started);
  ASSERT_EQ(ranks.size(), 2U) << started->output();
  const std::set<std::string> of_first = bound_cores(ranks[0]);
  const std::set<std::string> of_second = bound_cores(ranks[1]);
  started->signal(SIGTERM);
  started->wait();
  EXPECT_EQ(of_first.size(), 1U) << started->output();
  EXPECT_EQ(of_second.size(), 1U) << started->output();
  EXPECT_NE(of_first, of_second);
}

TEST_F(TcpProcessesTest, AnErrorIsSaidOnce) {
  const Result of_all = run_processes(3, training("refused", set("parallel.tensor", "2")));
  EXPECT_EQ(of_all.status, 1);
  EXPECT_THAT(of_all.output, HasSubstr("parallel.tensor (2) does not divide"));
  EXPECT_EQ(occurrences(of_all.output, "tessera: error"), 1U) << of_all.output;

  const std::map<std::string, std::string> both{{"TESSERA_RANKS", "2"},
                                                {"TESSERA_ADDRESS", free_address()}};
  auto first = both;
  first["TESSERA_RANK"] = "0";
  auto second = both;
  second["TESSERA_RANK"] = "1";
  const auto one = start_one(first, training("refused"), "first.txt");
  const auto other = start_one(second, training("refused", set("train.seed", "7")), "second.txt");
  EXPECT_EQ(one->wait(), 1);
  EXPECT_EQ(other->wait(), 1);
  const std::string output = one->output() + other->output();
  EXPECT_THAT(output, AllOf(HasSubstr("error: rank 1 ("),
                            HasSubstr("has another value of the configuration than rank 0 ("),
                            HasSubstr("train.seed is 1 there and 7 here")));
  EXPECT_EQ(occurrences(output, "tessera: error"), 1U) << output;
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(TcpProcessesTest, AProcessThatIsKilledIsNamedAndTheLastCheckpointIsWhole) {
  for (const size_t victim : {0U, 2U}) {
    SCOPED_TRACE(victim);
    const std::string name = "killed-" + std::to_string(victim);
    const Arguments batch = joined(set("train.global_batch", "3"), set("train.micro_batch", "1"));
    const auto started = start(3, long_training(name, batch));
    ASSERT_TRUE(await_checkpoint(name)) << started->output();
    const std::vector<pid_t> ranks = processes_of(*started);
    ASSERT_EQ(ranks.size(), 3U) << started->output();
    ::kill(ranks[victim], SIGKILL);
    EXPECT_NE(started->wait(), 0);
    EXPECT_THAT(started->output(), victim == 0 ? HasSubstr("through which the ranks meet, is lost")
                                               : HasSubstr("rank 2 failed: its process on "));
    const Result resumed = run(
        training(name, joined(joined(set("train.steps", "100000"), {"--resume", "--ranks", "3"}),
                              joined(batch, set("train.stop_after", "200")))));
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("going on after step"));
  }
}

TEST_F(TcpProcessesTest, AProcessThatIsStoppedIsNamed) {
  for (const size_t victim : {0U, 1U}) {
    SCOPED_TRACE(victim);
    const std::string name = "stopped-" + std::to_string(victim);
    const Arguments batch = joined(set("train.global_batch", "3"), set("train.micro_batch", "1"));
    const auto started =
        start(3, long_training(name, joined(batch, set("run.rank_timeout", kPatience))));
    await(folder_ / name / "metrics.jsonl");
    const std::vector<pid_t> ranks = processes_of(*started);
    ASSERT_EQ(ranks.size(), 3U) << started->output();
    ::kill(ranks[victim], SIGSTOP);
    const std::string words = victim == 0 ? "it has not answered for " : "rank 1 did not come";
    for (int i = 0; i < 600 && started->output().find(words) == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ::kill(ranks[victim], SIGKILL);
    EXPECT_NE(started->wait(), 0);
    EXPECT_THAT(started->output(), HasSubstr(words));
    EXPECT_EQ(occurrences(started->output(), "tessera: error"), victim == 0 ? 2U : 1U)
        << started->output();
  }
}

TEST_F(TcpProcessesTest, AProcessThatGoesOnAfterTheOthersGaveUpSaysSo) {
  const auto started = start(2, long_training("late", set("run.rank_timeout", kPatience)));
  await(folder_ / "late" / "metrics.jsonl");
  const std::vector<pid_t> ranks = processes_of(*started);
  ASSERT_EQ(ranks.size(), 2U) << started->output();
  ::kill(ranks[1], SIGSTOP);
  for (int i = 0; i < 600 && path_exists("/proc/" + std::to_string(ranks[0])); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const size_t before = started->output().size();
  ::kill(ranks[1], SIGCONT);
  EXPECT_NE(started->wait(), 0);
  // It hears the first rank's last message, or finds the connection lost in what it does.
  EXPECT_THAT(started->output().substr(before),
              ::testing::AnyOf(HasSubstr("rank 1: another rank has ended the run"),
                               HasSubstr("tessera: error: rank 1 (")));
}

TEST_F(TcpProcessesTest, ASaveThatLastsTooLongIsNamed) {
  expect_end_without_first("slow", "stop:1:checkpoints/step-00000004.partial/manifest.json",
                           {"it has not answered for ", "run.rank_timeout"});
}

/// The first has trained and saved, and is stopped before it says that it has ended.
TEST_F(TcpProcessesTest, OneThatIsStoppedAtTheEndHoldsTheOthersForTheTimeout) {
  expect_end_without_first("stopped-last", "stop_at_removal:1:run.lock",
                           {"rank 0", "does not answer"});
  EXPECT_TRUE(path_exists(checkpoint("stopped-last")));
}

TEST_F(TcpProcessesTest, SaveAndEndWhenTheyAreToldTo) {
  const auto started = start(2, long_training("ended", set("checkpoint.every", "0")));
  await(folder_ / "ended" / "metrics.jsonl");
  started->signal(SIGTERM);
  EXPECT_EQ(started->wait(), 0);
  EXPECT_EQ(occurrences(started->output(), "interrupted: saved step"), 1U) << started->output();
  EXPECT_EQ(list_folder(folder_ / "ended" / "checkpoints").size(), 1U);
}

TEST_F(TcpProcessesTest, OneThatDoesNotComeIsNamedAndOneTooManyIsRefused) {
  const Arguments patience = set("run.rank_timeout", kPatience);
  const auto environment = [](const char* ranks, const char* rank, const std::string& address) {
    return std::map<std::string, std::string>{
        {"TESSERA_RANKS", ranks}, {"TESSERA_RANK", rank}, {"TESSERA_ADDRESS", address}};
  };
  const std::string of_three_ranks = free_address();
  const std::string of_nobody = free_address();
  const std::string of_two_ranks = free_address();
  const auto first =
      start_one(environment("3", "0", of_three_ranks), training("one", patience), "0.txt");
  const auto second =
      start_one(environment("3", "1", of_three_ranks), training("one", patience), "1.txt");
  EXPECT_EQ(first->wait(), 1);
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(first->output(), HasSubstr("1 of the 3 processes have not come to rank 0"));
  EXPECT_THAT(first->output(), HasSubstr("rank 2"));
  EXPECT_THAT(second->output(), HasSubstr("1 of the 3 processes have not come to rank 0"));

  const auto alone =
      start_one(environment("2", "1", of_nobody), training("one", patience), "2.txt");
  EXPECT_EQ(alone->wait(), 1);
  EXPECT_THAT(alone->output(),
              HasSubstr(fmt::format("{} does not answer after {} s", of_nobody, kPatience)));

  const auto here = start_one(environment("2", "0", of_two_ranks), training("two"), "3.txt");
  const auto of_three = start_one(environment("3", "2", of_two_ranks), training("two"), "4.txt");
  EXPECT_EQ(of_three->wait(), 1);
  EXPECT_THAT(of_three->output(), HasSubstr("was started as one of 3 processes, and rank 0 ("));
  const auto there = start_one(environment("2", "1", of_two_ranks), training("two"), "5.txt");
  EXPECT_EQ(here->wait(), 0) << here->output();
  EXPECT_EQ(there->wait(), 0) << there->output();
  EXPECT_FALSE(path_exists(folder_ / "one"));

  for (const char* rank : {"0", "1"}) {
    const auto unproven =
        start_one(environment("2", rank, "192.0.2.1:19521"), training("three"), "5.txt");
    EXPECT_EQ(unproven->wait(), 1);
    EXPECT_THAT(unproven->output(), HasSubstr("TESSERA_TOKEN is not set"));
  }
  auto with_token = environment("2", "0", "192.0.2.1:19521");
  with_token["TESSERA_TOKEN"] = "0123456789abcdef";
  const auto elsewhere = start_one(with_token, training("three"), "6.txt");
  EXPECT_EQ(elsewhere->wait(), 1);
  EXPECT_THAT(elsewhere->output(), HasSubstr("cannot listen at 192.0.2.1:19521"));
  with_token["TESSERA_ADDRESS"] = "no.such.host.invalid:1";
  const auto nowhere = start_one(with_token, training("three"), "7.txt");
  EXPECT_EQ(nowhere->wait(), 1);
  EXPECT_THAT(nowhere->output(), HasSubstr("no.such.host.invalid:1 is no address"));
  EXPECT_THAT(nowhere->output(), Not(HasSubstr("internal")));
}

}  // namespace
}  // namespace tessera
