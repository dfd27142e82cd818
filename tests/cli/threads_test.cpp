#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "base/usable_cores.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/safetensors_reader.h"
#include "cli/program.h"
#include "support/prepared_data.h"
#include "train/trainer.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::Subprocess;

/// How the program sets up the threads that it computes with.
class ProgramThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::small_text(600);
    // Some letters occur only once.
    size_t at = 0;
    for (char letter = 'A'; letter <= 'Z'; ++letter) {
      at = text.find('\n', at + text.size() / 30);
      text.insert(at, 1, letter);
    }
    testing::prepare_text(folder_.path(), text);
    write_file(config(), testing::small_config(folder_.path()));
  }

  std::vector<std::string> train(const std::vector<std::string>& overrides) const {
    std::vector<std::string> arguments{"train", config(), "--quiet"};
    for (const std::string& each : overrides) arguments.insert(arguments.end(), {"--set", each});
    return arguments;
  }
  std::string config() const { return (folder_.path() / "config.toml").string(); }

  /// A run named `run` that goes on for long and has done a step; `before` is what env is told.
  std::unique_ptr<Subprocess> in_training(const std::string& run,
                                          const std::vector<std::string>& before,
                                          std::vector<std::string> overrides = {}) const {
    const fs::path directory = folder_.path() / run;
    overrides.insert(overrides.end(), {"run.directory=" + directory.string(), "train.steps=1000000",
                                       "checkpoint.every=0"});
    std::vector<std::string> arguments{"/usr/bin/env"};
    arguments.insert(arguments.end(), before.begin(), before.end());
    arguments.emplace_back(TESSERA_PROGRAM);
    const auto own = train(overrides);
    arguments.insert(arguments.end(), own.begin(), own.end());
    auto process = std::make_unique<Subprocess>(arguments, folder_.path() / (run + ".txt"));
    const fs::path metrics = directory / "metrics.jsonl";
    while (process->running() && (!fs::exists(metrics) || fs::file_size(metrics) == 0)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(process->running()) << process->output();
    return process;
  }

  TemporaryFolder folder_;
};

std::set<int> cores_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> cores;
  if (::sched_getaffinity(thread, sizeof(set), &set) != 0) return cores;  // it has ended
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.insert(core);
  }
  return cores;
}

/// The cores that each thread of a program may run on.
std::vector<std::set<int>> cores_of_threads(pid_t process) {
  std::vector<std::set<int>> result;
  const fs::path threads = "/proc/" + std::to_string(process) + "/task";
  for (const auto& entry : fs::directory_iterator(threads)) {
    result.push_back(cores_of(std::stoi(entry.path().filename().string())));
  }
  return result;
}

/// Why no team's threads are bound here, or null.
const char* why_never_bound() {
  if (cores_of(0).size() < 2) return "one core";
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr) return "the environment binds OpenMP's threads";
  }
  return nullptr;
}

TEST_F(ProgramThreads, OfATeamHaveACoreEachAndTheLoaderHasAllUnlessToldNotTo) {
  const std::set<int> all = cores_of(0);
  if (const char* reason = why_never_bound()) GTEST_SKIP() << reason;
  for (const bool bound : {true, false}) {
    const std::string run = bound ? "bound" : "free";
    const auto process =
        in_training(run, {},
                    {"run.threads=" + std::to_string(all.size()),
                     std::string("run.bind_threads=") + (bound ? "true" : "false")});
    std::set<int> taken;
    size_t free = 0;
    for (const std::set<int>& cores : cores_of_threads(process->id())) {
      if (cores.size() == 1) {
        EXPECT_TRUE(taken.insert(*cores.begin()).second) << "two threads on one core";
      }
      if (cores == all) ++free;
    }
    EXPECT_EQ(taken, bound ? all : std::set<int>()) << run;
    EXPECT_GE(free, bound ? 1U : all.size() + 1) << run;
  }
}

/// OpenMP's settings that a program was started with, or started itself once more with.
std::vector<std::string> openmp_settings(pid_t process) {
  std::ifstream variables("/proc/" + std::to_string(process) + "/environ");
  std::vector<std::string> settings;
  for (std::string each; std::getline(variables, each, '\0');) {
    if (each.starts_with("OMP_") || each.starts_with("GOMP_")) settings.push_back(each);
  }
  return settings;
}

TEST_F(ProgramThreads, AreListedByTheProgramsName) {
  const auto process = in_training("named", {"-u", "OMP_WAIT_POLICY"});
  std::ifstream file("/proc/" + std::to_string(process->id()) + "/comm");
  std::string name;
  std::getline(file, name);
  EXPECT_EQ(name, "tessera");
}

TEST_F(ProgramThreads, WaitShortlyAndThenSleepUnlessTheUserSaysOtherwise) {
  const std::vector<std::string> unset{"-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT"};
  const auto settings = [&](const std::string& run, const std::vector<std::string>& set) {
    std::vector<std::string> before = unset;
    before.insert(before.end(), set.begin(), set.end());
    return openmp_settings(in_training(run, before)->id());
  };
  const std::string sleeps = "OMP_WAIT_POLICY=passive";
  EXPECT_THAT(settings("usual", {}), IsSupersetOf({sleeps, std::string("GOMP_SPINCOUNT=2000")}));
  EXPECT_THAT(settings("spins", {"GOMP_SPINCOUNT=7"}),
              IsSupersetOf({sleeps, std::string("GOMP_SPINCOUNT=7")}));
  const auto users = settings("users", {"OMP_WAIT_POLICY=active"});
  EXPECT_THAT(users, Contains("OMP_WAIT_POLICY=active"));
  EXPECT_THAT(users, Not(Contains(HasSubstr("GOMP_SPINCOUNT"))));
}

TEST_F(ProgramThreads, AreWithinTheLimitOfOpenMPOrRefused) {
  const auto limited = [&](const std::string& threads, const std::string& ranks) {
    std::vector<std::string> arguments{"/usr/bin/env", "OMP_THREAD_LIMIT=1", TESSERA_PROGRAM};
    const auto own = train({"train.stop_after=2", "run.hardware=\"\"", "run.threads=" + threads});
    arguments.insert(arguments.end(), own.begin(), own.end());
    arguments.insert(arguments.end(), {"--ranks", ranks});
    Subprocess process(arguments, folder_.path() / "limited.txt");
    const int status = process.wait();
    return std::pair(status, process.output());
  };
  for (const char* ranks : {"1", "2"}) {
    const auto [status, output] = limited("2", ranks);
    EXPECT_EQ(status, 1);
    EXPECT_THAT(output, HasSubstr("run.threads is 2, but OMP_THREAD_LIMIT is 1")) << ranks;
    EXPECT_FALSE(fs::exists(folder_.path() / "run"));
  }
  const auto [status, output] = limited("0", "2");
  EXPECT_EQ(status, 0) << output;
}

TEST_F(ProgramThreads, MoreThanTheCoresAreSaid) {
  const int cores = usable_cores().count;
  for (const int more : {0, 1}) {
    std::vector<std::string> arguments =
        train({"train.stop_after=1", "run.hardware=\"\"",
               fmt::format("run.directory={}", (folder_ / std::to_string(more)).string()),
               fmt::format("run.threads={}", cores + more)});
    const auto result = testing::run_program(folder_, arguments);
    EXPECT_EQ(result.status, 0) << result.output;
    const std::string said =
        fmt::format("run.threads is {}, and this process may use {} core", cores + more, cores);
    EXPECT_EQ(result.output.find(said) != std::string::npos, more == 1) << result.output;
  }
}

/// Whether each of the program's threads that is bound to a core has it alone, and each core has
/// one.
bool every_core_has_a_thread(pid_t process) {
  std::multiset<int> taken;
  for (const std::set<int>& cores : cores_of_threads(process)) {
    if (cores.size() == 1) taken.insert(*cores.begin());
  }
  const std::set<int> all = cores_of(0);
  return taken == std::multiset<int>(all.begin(), all.end());
}

TEST_F(ProgramThreads, HaveACoreEachWhileAPartIsMeasuredAlone) {
  if (const char* reason = why_never_bound()) GTEST_SKIP() << reason;
  // Each takes longer than the test looks at it.
  const std::vector<std::vector<std::string>> commands{
      {"gemm", "--m", "8", "--n", "8", "--k", "8", "--precision", "fp64", "--seconds", "1000"},
      {"memory", "--sizes", "1MiB", "--seconds", "1000"},
      {"moe", "--tokens", "512", "--precision", "fp32", "--hidden", "64", "--expert-size", "64",
       "--repeats", "1000000"},
      {"attention", "--tokens", "512", "--precision", "fp32", "--repeats", "1000000"}};
  for (std::vector<std::string> arguments : commands) {
    const std::string name = arguments[0];
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--threads", std::to_string(cores_of(0).size())});
    const auto process = testing::start_program(folder_, arguments);
    bool bound = false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!bound && process->running() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      bound = every_core_has_a_thread(process->id());
    }
    EXPECT_TRUE(bound) << name << ": " << process->output();
  }
}

/// Denormal numbers in the moments of a run's newest checkpoint.
int64_t denormals(const fs::path& run) {
  const CheckpointReader reader(latest_checkpoint(run / kCheckpointsName).path.value());
  int64_t count = 0;
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    if (tensor.group != "optimizer") continue;
    const SafetensorsReader file(reader.path() / tensor.pieces[0].file);
    const std::vector<std::byte> bytes = file.read(*file.find(tensor.name));
    for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof(float));
      if (std::fpclassify(value) == FP_SUBNORMAL) ++count;
    }
  }
  return count;
}

TEST_F(ProgramThreads, TakeDenormalNumbersForZero) {
  // The moments of letters that occur once vanish within some tens of steps.
  const std::vector<std::string> vanishing{"optimizer.beta1=0.1", "optimizer.beta2=0.1",
                                           "train.steps=60"};
  tessera::train(parse_config(testing::small_config(folder_.path(), "kept"), "test", vanishing),
                 {.progress = false}, Logger());
  ASSERT_GT(denormals(folder_.path() / "kept"), 0) << "nothing to be seen in this process";
  const auto result = testing::run_program(folder_, train(vanishing));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(denormals(folder_.path() / "run"), 0);
}

}  // namespace
}  // namespace tessera
