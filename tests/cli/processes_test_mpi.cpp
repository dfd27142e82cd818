// Training by several processes, as mpirun starts them.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/random.h"
#include "cli/process_runs.h"
#include "metrics/metrics.h"
#include "pipeline/run_trace.h"
#include "support/rounds.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::occurrences;

class ProcessesTest : public testing::ProcessRuns {
 protected:
  /// Waits until so many processes of mpirun have each computed for half a second, which they take
  /// for more than their start. Returns whether they have.
  static bool await_computing(testing::Subprocess& mpirun, size_t processes) {
    const auto computes = [](pid_t process) {
      std::ifstream file(fmt::format("/proc/{}/stat", process));
      std::string field;
      for (int skipped = 0; skipped < 13; ++skipped) file >> field;
      long user = 0, system = 0;
      file >> user >> system;
      return user + system > ::sysconf(_SC_CLK_TCK) / 2;
    };
    while (mpirun.running()) {
      const std::vector<pid_t> all = processes_of(mpirun);
      if (all.size() >= processes && std::all_of(all.end() - processes, all.end(), computes)) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  /// Waits until a process has taken a signal that it was sent.
  static void await_taken(pid_t process, int signal) {
    const uint64_t bit = uint64_t{1} << (signal - 1);
    for (uint64_t pending = bit; (pending & bit) != 0;) {
      std::ifstream status(fmt::format("/proc/{}/status", process));
      pending = 0;
      for (std::string line; std::getline(status, line);) {
        if (line.starts_with("ShdPnd:")) pending = std::stoull(line.substr(7), nullptr, 16);
      }
    }
  }
};

TEST_F(ProcessesTest, GiveTheBitsOfThreads) {
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    Arguments layout = joined(set("parallel.tensor", "2"), set("parallel.expert", "4"));
    layout = joined(layout, set("parallel.expert_exchange", "\"" + exchange + "\""));
    const Result threads = run(training("threads-" + exchange, joined(layout, {"--ranks", "4"})));
    ASSERT_EQ(threads.status, 0) << threads.output;
    const Result processes = run_processes(4, training("processes-" + exchange, layout));
    ASSERT_EQ(processes.status, 0) << processes.output;
    EXPECT_THAT(processes.output, HasSubstr("4 ranks (2 tensor x 2 data, 4 expert)"));
    EXPECT_EQ(occurrences(processes.output, "done: step 4"), 1U) << "one log";
    expect_same_run("threads-" + exchange, "processes-" + exchange, 8);
  }
}

TEST_F(ProcessesTest, InPipelinesGiveTheBitsOfThreads) { expect_bits_of_threads_in_pipelines(); }

TEST_F(ProcessesTest, TraceAStepIntoOneFile) { expect_trace_of_processes(); }

/// mpirun names a process that is killed. One that is stopped, the other stages name.
TEST_F(ProcessesTest, AStageThatIsKilledOrStoppedIsNamed) {
  for (const size_t victim : {0U, 1U, 2U}) {
    const bool stops = victim != 2;
    SCOPED_TRACE(fmt::format("stage {} is {}", victim, stops ? "stopped" : "killed"));
    const auto [started, stages] = start_pipeline(fmt::format("stage-{}", victim));
    ASSERT_EQ(stages.size(), 3U) << started->output();
    ::kill(stages[victim], stops ? SIGSTOP : SIGKILL);
    EXPECT_NE(started->wait(), 0);
    if (stops) {
      EXPECT_THAT(started->output(), AllOf(HasSubstr(fmt::format("ank {} (", victim)),
                                           HasSubstr("does not answer: it is stopped, or gone")));
    } else {
      EXPECT_THAT(started->output(), HasSubstr(fmt::format("process rank {} ", victim)));
    }
  }
}

/// Each process has an emulated device of its own, with kernels, streams and graphs.
TEST_F(ProcessesTest, OnDevicesGiveTheBitsOfThreads) {
  expect_bits_of_threads_on_devices("experts",
                                    {"parallel.expert=2", "parallel.expert_exchange='all_gather'"});
  expect_bits_of_threads_on_devices("muon", cut_by_muon());
}

TEST_F(ProcessesTest, VerifyAsThreadsDo) {
  const Arguments layout = joined(set("parallel.tensor", "2"), set("parallel.expert", "4"));
  const Arguments verify = joined({"verify", (folder_ / "run.toml").string(), "--json"}, layout);
  const Result threads = run(joined(verify, {"--ranks", "4"}));
  ASSERT_EQ(threads.status, 0) << threads.output;
  const Result processes = run_processes(4, verify);
  ASSERT_EQ(processes.status, 0) << processes.output;
  // Lines of progress come before.
  const auto of = [](const Result& result) {
    return nlohmann::json::parse(result.output.substr(result.output.find("{\n")));
  };
  EXPECT_EQ(of(threads), of(processes));
  EXPECT_EQ(of(processes).at("passed"), true);
  EXPECT_EQ(of(processes).at("ranks"), 4);
  EXPECT_EQ(occurrences(processes.output, "fp64, one rank with the weights of"), 1U) << "one log";

  const Arguments plain{"verify", (folder_ / "run.toml").string()};
  const Result other = run_processes(
      1, plain, joined(joined({":", "-n", "1", TESSERA_PROGRAM}, plain), set("train.seed", "7")));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.output,
              AllOf(HasSubstr("error: rank 1 ("), HasSubstr("train.seed is 1 there and 7 here")));
  const Result both = run_processes(2, joined(verify, {"--ranks", "2"}));
  EXPECT_EQ(both.status, 1);
  EXPECT_THAT(both.output, HasSubstr("--ranks (2) is for the threads of one process"));
}

TEST_F(ProcessesTest, EvaluateAsThreadsDo) {
  ASSERT_EQ(run(training("trained")).status, 0);
  // A configuration of a layout, of which only [parallel] is taken.
  write_file(folder_ / "layout.toml",
             testing::small_config(folder_.path()) + "[parallel]\ntensor = 2\nexpert = 4\n");
  const Arguments data_ranks{"eval", "--checkpoint", (folder_ / "trained").string(), "--json"};
  const Arguments layout = joined(data_ranks, {"--data", (folder_ / "data").string(), "--config",
                                               (folder_ / "layout.toml").string()});
  const Arguments stages =
      joined(data_ranks, joined(set("parallel.pipeline", "2"), set("parallel.tensor", "2")));
  for (const Arguments& eval : {data_ranks, layout, stages}) {
    const Result threads = run(joined(eval, {"--ranks", "4"}));
    ASSERT_EQ(threads.status, 0) << threads.output;
    const Result processes = run_processes(4, eval);
    ASSERT_EQ(processes.status, 0) << processes.output;
    EXPECT_EQ(processes.output, threads.output) << "all digits, and one report";
  }
}

TEST_F(ProcessesTest, ARankThatEvaluatesSomethingElseIsNamed) {
  ASSERT_EQ(run(training("trained", set("checkpoint.every", "2"))).status, 0);
  const auto eval = [&](const fs::path& checkpoint, const Arguments& more = {}) {
    return joined({"eval", "--checkpoint", checkpoint.string()}, more);
  };
  const Arguments newest = eval(folder_ / "trained");
  const auto expect_refused = [&](const Arguments& other, const std::string& words) {
    const Result result =
        run_processes(1, newest, joined({":", "-n", "1", TESSERA_PROGRAM}, other));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, AllOf(HasSubstr("error: rank 1 ("), HasSubstr(words)));
    EXPECT_EQ(occurrences(result.output, "tessera: error"), 1U) << result.output;
  };
  expect_refused(eval(checkpoint("trained", 2)), "has another value of the checkpoint than rank 0");
  expect_refused(eval(checkpoint("trained", 2)), "step 4 with the hash ");
  expect_refused(eval(folder_ / "trained", {"--batch", "4"}), "8 there and 4 here");
  expect_refused(eval(folder_ / "trained", set("parallel.tensor", "2")),
                 "parallel.tensor is 1 there and 2 here");
  expect_refused(eval(folder_ / "nowhere"), "nowhere");

  const Result batch = run_processes(3, newest);
  EXPECT_EQ(batch.status, 1);
  EXPECT_THAT(batch.output, HasSubstr("--batch (8) does not divide over 3 data-parallel ranks, "
                                      "which 3 processes leave beside parallel.tensor (1)"));
  const Result tasks = run_processes(2, joined(newest, {"--tasks", "questions.jsonl"}));
  EXPECT_EQ(tasks.status, 1);
  EXPECT_THAT(tasks.output, HasSubstr("--tasks: questions are answered by one process"));
}

/// A path may name other files on two machines: here in two folders.
TEST_F(ProcessesTest, ARankWithAnotherScheduleFileIsNamed) {
  ASSERT_EQ(run(training("trained")).status, 0);
  const std::string start = "tessera pipeline schedule 1\nmicro-batches 1\n";
  write_file(folder_ / "lists", start + "chunks 0 1\nrank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n");
  fs::create_directory(folder_ / "other");
  write_file(folder_ / "other" / "lists",
             start + "chunks 1 0\nrank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n");
  const Arguments eval =
      joined({"eval", "--checkpoint", fs::canonical(folder_ / "trained").string()},
             joined(set("parallel.pipeline", "2"), set("parallel.schedule", "lists")));
  const auto run_in = [&](const fs::path& second) {
    const Arguments other{":", "-n", "1", "-wdir", fs::canonical(second).string(), TESSERA_PROGRAM};
    return run_processes(1, eval, joined(other, eval));
  };
  const fs::path here = fs::current_path();
  fs::current_path(folder_.path());
  const Result same = run_in(".");
  const Result different = run_in("other");
  fs::current_path(here);
  EXPECT_EQ(same.status, 0) << same.output;
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.output,
              AllOf(HasSubstr("error: rank 1 ("),
                    HasSubstr("has another value of the file of parallel.schedule than rank 0")));
}

TEST_F(ProcessesTest, ACommandThatRunsInOneRefusesToBeOneOfSeveral) {
  const fs::path output = folder_ / "prepared";
  const Result prepare =
      run_processes(2, {"prepare", "--input", (folder_ / "text.txt").string(), "--output",
                        output.string(), "--tokenizer", "bytes", "--context", "32"});
  EXPECT_EQ(prepare.status, 1);
  EXPECT_THAT(prepare.output,
              HasSubstr("mpirun started 2 processes, and `tessera prepare` runs in one"));
  EXPECT_FALSE(path_exists(output));
  const Result inspect = run_processes(2, {"checkpoint", "verify", (folder_ / "run").string()});
  EXPECT_EQ(inspect.status, 1);
  EXPECT_THAT(inspect.output, HasSubstr("`tessera checkpoint verify` runs in one"));
  EXPECT_EQ(run_processes(2, {"prepare", "--help"}).status, 0);
  EXPECT_EQ(run_processes(1, {"explain", (folder_ / "run.toml").string()}).status, 0);
}

TEST_F(ProcessesTest, MeasureCollectives) {
  const Result result = run_processes(
      3, {"bench", "collectives", "--ranks", "2,3", "--sizes", "1KiB", "--seconds", "0", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const auto rates = nlohmann::json::parse(result.output);
  ASSERT_EQ(rates.size(), 12U) << "one report";
  EXPECT_EQ(rates[0].at("carrier"), "processes");
  EXPECT_EQ(rates[0].at("ranks"), 2);
  EXPECT_EQ(rates[11].at("ranks"), 3);
  EXPECT_EQ(rates[11].at("machines"), 1);
  const Result many = run_processes(2, {"bench", "collectives", "--ranks", "4"});
  EXPECT_EQ(many.status, 1);
  EXPECT_THAT(many.output, HasSubstr("--ranks is 4, and there are 2 processes"));
}

TEST_F(ProcessesTest, MeasureSchedules) {
  const std::string config = (folder_ / "pipeline.toml").string();
  write_file(config,
             "[model]\nfamily = 'llama'\nlayers = 2\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
             "feed_forward_size = 16\nvocabulary_size = 32\n[data]\ncontext = 8\n"
             "[train]\nmicro_batch = 1\nglobal_batch = 4\nsteps = 20\n[parallel]\npipeline = 2\n");
  const std::vector<std::string> command{"bench", "schedule", config, "--repeats", "2"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), command.begin(), command.end());
    return run_processes(2, arguments);
  };
  const fs::path traced = folder_ / "trace.json";
  const Result result = with({"--seconds", "0.001", "--json", "--trace", traced.string()});
  ASSERT_EQ(result.status, 0) << result.output;
  const RunTrace trace = read_trace(traced);
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.ranks[1].stage, 1);
  EXPECT_FALSE(trace.ranks[1].step.events.empty());
  const auto json = nlohmann::json::parse(result.output.substr(result.output.find("{\"bench\"")));
  EXPECT_EQ(json["stages"], 2);
  ASSERT_EQ(json["makespan_seconds"].size(), 2U);
  for (const auto& makespan : json["makespan_seconds"]) {
    EXPECT_GE(makespan, json["expected_makespan_seconds"].get<double>() * (1 - 1e-9));
  }
  EXPECT_THAT(with({"--ranks", "2"}).output, HasSubstr("--ranks (2) is for the threads"));
  EXPECT_THAT(with({"--times", (folder_ / "none.json").string()}).output, HasSubstr("none.json"));
}

TEST_F(ProcessesTest, GoOnUnderAnotherLayoutOfThreadsAndProcesses) {
  const Arguments wide = joined(set("train.precision", "\"fp64\""), set("checkpoint.every", "2"));
  const Result whole = run(training("whole", wide));
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result first = run_processes(
      2, training("parts",
                  joined(wide, joined(set("parallel.tensor", "2"), set("train.stop_after", "2")))));
  ASSERT_EQ(first.status, 0) << first.output;
  const Result second = run_processes(
      4, training("parts", joined(joined(wide, set("parallel.tensor", "2")),
                                  joined(joined(set("parallel.expert", "4"), {"--resume"}),
                                         set("train.micro_batch", "1")))));
  ASSERT_EQ(second.status, 0) << second.output;
  const std::vector<StepMetrics> of_whole = metrics("whole");
  const std::vector<StepMetrics> of_parts = metrics("parts");
  ASSERT_EQ(of_whole.size(), 4U);
  ASSERT_EQ(of_parts.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(of_parts[i].loss / of_whole[i].loss, 1, 1e-10);
    EXPECT_NEAR(of_parts[i].grad_norm / of_whole[i].grad_norm, 1, 1e-10);
  }
}

TEST_F(ProcessesTest, ARankWithAnotherConfigurationIsNamed) {
  const Arguments other = joined({":", "-n", "1", TESSERA_PROGRAM}, training("refused"));
  const Result result =
      run_processes(1, training("refused"), joined(other, set("train.seed", "7")));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("error: rank 1 ("),
                                   HasSubstr("has another value of the configuration "
                                             "than rank 0 ("),
                                   HasSubstr("train.seed is 1 there and 7 here")));
  EXPECT_EQ(occurrences(result.output, "tessera: error"), 1U) << result.output;
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(ProcessesTest, ARankWithOtherDataIsNamed) {
  const Arguments data = set("data.directory", "\"data\"");
  ensure_directory(folder_ / "elsewhere");
  testing::prepare_text(folder_ / "elsewhere", testing::small_text(500));
  const Arguments second =
      joined({":", "-n", "1", "--wdir", (folder_ / "elsewhere").string(), TESSERA_PROGRAM},
             training("refused", data));
  // mpirun's own words come before the program's.
  const auto started = std::make_unique<testing::Subprocess>(
      joined(
          joined({TESSERA_RUN_PROCESSES, "1", "--wdir", folder_.path().string(), TESSERA_PROGRAM},
                 training("refused", data)),
          second),
      folder_ / "processes.txt");
  EXPECT_EQ(started->wait(), 1);
  EXPECT_THAT(started->output(),
              AllOf(HasSubstr("error: rank 1 ("),
                    HasSubstr("has another value of the data of the source data than rank 0 (")));
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

TEST_F(ProcessesTest, AnErrorOfAllIsSaidOnce) {
  const Result result = run_processes(3, training("refused", set("parallel.tensor", "2")));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("parallel.tensor (2) does not divide"));
  EXPECT_EQ(occurrences(result.output, "tessera: error"), 1U) << result.output;
  const Result threads = run_processes(2, training("refused", {"--ranks", "2"}));
  EXPECT_EQ(threads.status, 1);
  EXPECT_THAT(threads.output, HasSubstr("--ranks (2) is for the threads of one process, and this "
                                        "is one of 2"));
}

TEST_F(ProcessesTest, ARunThatHasNoOtherProcessesTrainsAlone) {
  const Result result = run_processes(1, training("alone"));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("ranks (")));
}

/// Processes that cannot meet would each train alone, and write one run.
TEST_F(ProcessesTest, ALauncherThatSpeaksAnotherLanguageIsRefused) {
  ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  const Result result = run(training("refused"));
  ::unsetenv("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("srun started 2 processes, but this one finds 1 of them"));
  EXPECT_FALSE(path_exists(folder_ / "refused"));
}

/// mpirun waits so many seconds before it hands the signal on, and as long until it kills.
TEST_F(ProcessesTest, SaveAndEndWhenMpirunIsToldTo) {
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "2", 1);
  const auto started = start(2, training("ended", joined(joined(set("train.steps", "100000"),
                                                                set("train.stop_after", "100000")),
                                                         set("checkpoint.every", "0"))));
  ::unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  const fs::path metrics_file = folder_ / "ended" / "metrics.jsonl";
  await(metrics_file);
  started->signal(SIGTERM);
  EXPECT_NE(started->wait(), 0);
  EXPECT_THAT(started->output(), HasSubstr("interrupted: saved step"));
  EXPECT_EQ(list_folder(folder_ / "ended" / "checkpoints").size(), 1U);
}

/// mpirun would wait for a minute before it hands the first signal on.
TEST_F(ProcessesTest, EndAtOnceWhenMpirunIsToldTwice) {
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "60", 1);
  const auto started = start(2, training("twice", joined(joined(set("train.steps", "100000"),
                                                                set("train.stop_after", "100000")),
                                                         set("checkpoint.every", "0"))));
  ::unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  await(folder_ / "twice" / "metrics.jsonl");
  const std::vector<pid_t> ranks = processes_of(*started);
  ASSERT_GE(ranks.size(), 2U) << started->output();
  started->signal(SIGTERM);
  await_taken(started->id(), SIGTERM);
  started->signal(SIGTERM);
  EXPECT_NE(started->wait(), 0);
  EXPECT_THAT(started->output(), Not(HasSubstr("saved step")));
  for (const pid_t rank : ranks) {
    for (int i = 0; i < 200 && ::kill(rank, 0) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_NE(::kill(rank, 0), 0) << "process " << rank << " goes on";
  }
  EXPECT_FALSE(path_exists(folder_ / "twice" / "checkpoints"));
}

TEST_F(ProcessesTest, AfterAProcessIsKilledTheLastCheckpointIsWhole) {
  const Arguments long_run =
      joined(joined(set("train.steps", "100000"), set("train.stop_after", "100000")),
             joined(set("checkpoint.every", "5"), set("parallel.expert", "2")));
  const auto started = start(2, training("killed", long_run));
  ASSERT_TRUE(await_checkpoint("killed")) << started->output();
  const std::vector<pid_t> ranks = processes_of(*started);
  ASSERT_GE(ranks.size(), 2U) << started->output();
  ::kill(ranks.back(), SIGKILL);
  EXPECT_NE(started->wait(), 0);
  const Result resumed = run(
      training("killed", joined(joined(set("train.steps", "100000"), {"--resume", "--ranks", "2"}),
                                set("train.stop_after", "300"))));
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("going on after step"));
}

TEST_F(ProcessesTest, ASaveThatLastsTooLongIsNamed) {
  expect_end_without_first(
      "slow", "stop:1:checkpoints/step-00000004.partial/manifest.json",
      {"the save of step 4", fmt::format("after {} s (run.rank_timeout", kPatience),
       "rank 1 waited and rank 0 did not come"});
}

/// The first has trained and saved, and is stopped before it says that it has ended.
TEST_F(ProcessesTest, OneThatIsStoppedAtTheEndHoldsTheOthersForTheTimeout) {
  expect_end_without_first(
      "stopped-last", "stop_at_removal:1:run.lock",
      {"rank 0 (",
       fmt::format("has not come to the end of the run: after {} s (run.rank_timeout", kPatience)});
  EXPECT_TRUE(path_exists(checkpoint("stopped-last")));
}

/// The ranks are mostly within MPI's own collective here, which would wait for ever. One that has
/// done its part of it already waits for the next call, and finds out there.
TEST_F(ProcessesTest, AProcessThatIsStoppedWithinACollectiveOfMpiIsNamed) {
  const auto started = start(3, {"bench", "collectives", "--sizes", "32MiB", "--collectives",
                                 "all_gather", "--seconds", "1000", "--rank-timeout", kPatience});
  ASSERT_TRUE(await_computing(*started, 3)) << started->output();
  const std::vector<pid_t> ranks = processes_of(*started);
  ASSERT_GE(ranks.size(), 3U) << started->output();
  ::kill(ranks[ranks.size() - 2], SIGSTOP);
  EXPECT_NE(started->wait(), 0);
  EXPECT_THAT(started->output(),
              AllOf(HasSubstr(fmt::format("after {} s (", kPatience)), HasSubstr(" rank 1 ("),
                    HasSubstr("does not answer: it is stopped, or gone, or cannot be reached")));
}

/// A rank is killed or stopped at any moment of a training. TESSERA_ROUNDS=100 in the environment
/// does so a hundred times.
TEST_F(ProcessesTest, AProcessThatIsKilledOrStoppedIsNamedAndTheCheckpointsAreWhole) {
  const Arguments keys =
      joined(joined(joined(set("train.steps", "100000"), set("train.stop_after", "100000")),
                    joined(set("checkpoint.every", "5"), set("run.rank_timeout", kPatience))),
             set("train.global_batch", "6"));
  const auto rounds = static_cast<uint64_t>(testing::rounds(2));
  const CounterRandom random(17, "moments");
  for (uint64_t round = 0; round < rounds; ++round) {
    const bool stops = round % 2 == 1;
    const uint64_t rank = random.bits(2 * round) % 3;
    const std::string name = fmt::format("round-{}", round);
    SCOPED_TRACE(fmt::format("{}: rank {} is {}", name, rank, stops ? "stopped" : "killed"));
    const auto started = start(3, training(name, keys));
    ASSERT_TRUE(await_checkpoint(name)) << started->output();
    std::this_thread::sleep_for(std::chrono::microseconds(random.bits(2 * round + 1) % 200000));
    const std::vector<pid_t> ranks = processes_of(*started);
    ASSERT_GE(ranks.size(), 3U) << started->output();
    ::kill(ranks[ranks.size() - 3 + rank], stops ? SIGSTOP : SIGKILL);
    EXPECT_NE(started->wait(), 0);
    const std::string output = started->output();
    if (stops) {
      EXPECT_THAT(output, HasSubstr(fmt::format("ank {} (", rank)));
      EXPECT_THAT(output, HasSubstr("does not answer: it is stopped, or gone"));
    } else {
      EXPECT_THAT(output, HasSubstr(fmt::format("process rank {} ", rank)));
    }
    const Result verified = run({"checkpoint", "verify", (folder_ / name).string()});
    EXPECT_EQ(verified.status, 0) << verified.output;
    fs::remove_all(folder_ / name);
  }
}

}  // namespace
}  // namespace tessera
