// A run among other processes: locks, signals, streams and limits.
#include <chrono>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/address_limit.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Subprocess;
using Result = testing::ProgramResult;

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::prepare_small_data(folder_.path());
    write_file(folder_ / "config.toml", testing::small_config(folder_.path()));
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  std::vector<std::string> train(const std::vector<std::string>& overrides,
                                 std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"train", path("config.toml")};
    for (const std::string& each : overrides) arguments.insert(arguments.end(), {"--set", each});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Runs a command of the shell, in which $TESSERA is the program and $CONFIG its configuration.
  std::unique_ptr<Subprocess> shell(const std::string& command) const {
    return std::make_unique<Subprocess>(
        std::vector<std::string>{"/usr/bin/env", std::string("TESSERA=") + TESSERA_PROGRAM,
                                 "CONFIG=" + path("config.toml"), "/bin/sh", "-c", command},
        folder_ / "shell.txt");
  }
  size_t metrics_lines() const {
    std::error_code code;
    if (!fs::exists(folder_ / "run/metrics.jsonl", code)) return 0;
    return static_cast<size_t>(std::ranges::count(read_file(folder_ / "run/metrics.jsonl"), '\n'));
  }
  /// Waits until the run has done `steps` steps.
  void await(Subprocess& process, size_t steps) const {
    while (process.running() && metrics_lines() < steps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(process.running()) << process.output();
  }

  const std::vector<std::string> endless_{"train.steps=1000000", "checkpoint.every=0"};
  const std::vector<std::string> short_{"train.steps=3", "optimizer.warmup_steps=1"};
  TemporaryFolder folder_;
};

TEST_F(RunTest, ADeviceThatIsNotHereIsAnErrorThatSaysWhatIsMissing) {
  for (const char* const device : {"cuda", "hip"}) {
    const auto process =
        shell(std::string("CUDA_VISIBLE_DEVICES=-1 HIP_VISIBLE_DEVICES=-1 exec \"$TESSERA\" train "
                          "\"$CONFIG\" --set run.device=") +
              device);
    EXPECT_EQ(process->wait(), 1) << device;
    EXPECT_THAT(process->output(), AllOf(HasSubstr(std::string("the device \"") + device + "\""),
                                         ::testing::Not(HasSubstr("internal"))))
        << device;
  }
}

TEST_F(RunTest, IsHeldByOneProcess) {
  auto arguments = train(endless_, {"--quiet"});
  arguments.insert(arguments.begin(), TESSERA_PROGRAM);
  Subprocess first(arguments, folder_ / "first.txt");
  await(first, 1);
  const auto held =
      AllOf(HasSubstr(path("run") + " is held by process " + std::to_string(first.id()) + " on "),
            HasSubstr("tessera train " + path("config.toml")));
  for (const std::vector<std::string>& more : {std::vector<std::string>(), {"--resume"}}) {
    const Result second = run(train(short_, more));
    EXPECT_EQ(second.status, 1);
    EXPECT_THAT(second.output, held);
  }
  EXPECT_TRUE(first.running());
  first.signal(SIGKILL);
  first.wait();
  const Result after = run(train(short_));
  EXPECT_EQ(after.status, 0) << after.output;
  EXPECT_FALSE(fs::exists(folder_ / "run/run.lock"));
}

TEST_F(RunTest, ATerminalThatClosesEndsItWithACheckpoint) {
  const auto process = testing::start_program(folder_, train(endless_));
  await(*process, 1);
  process->signal(SIGHUP);
  process->signal(SIGHUP);
  EXPECT_EQ(process->wait(), 0) << process->output();
  EXPECT_THAT(process->output(), HasSubstr("interrupted: saved step"));
}

TEST_F(RunTest, UnderNohupItOutlivesItsTerminal) {
  const auto process = shell(
      "trap '' HUP; exec \"$TESSERA\" train \"$CONFIG\" --set train.steps=1000000 --set "
      "checkpoint.every=0");
  await(*process, 1);
  process->signal(SIGHUP);
  await(*process, metrics_lines() + 3);
  process->signal(SIGTERM);
  EXPECT_EQ(process->wait(), 0) << process->output();
}

TEST_F(RunTest, AReaderThatGoesEndsNothing) {
  const auto process = shell(
      "{ \"$TESSERA\" train \"$CONFIG\" --set train.steps=20 --set checkpoint.every=10; "
      "echo $? > \"$CONFIG.status\"; } 2>&1 | head -n 1");
  process->wait();
  EXPECT_EQ(read_file(folder_ / "config.toml.status"), "0\n") << process->output();
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/step-00000020"));
}

TEST_F(RunTest, WithoutStandardErrorItsFilesStayItsOwn) {
  const auto process = shell(
      "exec \"$TESSERA\" train \"$CONFIG\" --set train.steps=20 --set checkpoint.every=5 --set "
      "run.csv=true 0<&- 1>&- 2>&-");
  EXPECT_EQ(process->wait(), 0);
  std::istringstream lines(read_file(folder_ / "run/metrics.jsonl"));
  int64_t step = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(nlohmann::json::parse(line, nullptr, false).value("step", 0), ++step) << line;
  }
  EXPECT_EQ(step, 20);
}

TEST_F(RunTest, NeedsNoMoreAddressesThanItsPlanSays) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs all addresses";
  const auto limited = [&](const std::string& command) {
    const auto process = shell("ulimit -v 2000000; exec \"$TESSERA\" " + command);
    EXPECT_EQ(process->wait(), 0) << process->output();
  };
  limited("train \"$CONFIG\" --set train.steps=12 --set train.evaluate_every=5");
  limited("eval --checkpoint " + path("run") + " --data " + path("data"));
  limited("generate --checkpoint " + path("run") + " --prompt the --tokens 3");
}

TEST_F(RunTest, MoreThreadsThanAnyMachineHasAreRefused) {
  ASSERT_EQ(run(train(short_)).status, 0);
  for (const std::string threads : {"100000", "1000000"}) {
    const auto refused = AllOf(HasSubstr("error: " + threads + " threads were asked for"),
                               HasSubstr("at most 4096"));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"eval", "--checkpoint", path("run"), "--data", path("data")},
          {"generate", "--checkpoint", path("run"), "--prompt", "the"},
          {"prepare", "--input", path("text.txt"), "--output", path("more"), "--tokenizer", "bytes",
           "--context", "32"}}) {
      auto arguments = command;
      arguments.insert(arguments.end(), {"--threads", threads});
      const Result result = run(arguments);
      EXPECT_EQ(result.status, 1) << command.front() << "\n" << result.output;
      EXPECT_THAT(result.output, refused) << command.front();
    }
  }
  EXPECT_EQ(run(train({"run.threads=100000"}, {"--resume"})).status, 1);
}

TEST_F(RunTest, AResumeNeedsNotWhatItBeganWith) {
  ASSERT_EQ(run(train(short_)).status, 0);
  std::string text = read_file(folder_ / "config.toml");
  const size_t model = text.find("[model]");
  text.erase(model, text.find("[data]") - model);  // all of it is that of the initial weights
  write_file(folder_ / "config.toml", text);
  const std::vector<std::string> later{"run.directory=" + path("later"), "train.steps=4",
                                       "optimizer.warmup_steps=1",
                                       "checkpoint.initial=" + path("run")};
  auto part = later;
  part.emplace_back("train.stop_after=2");
  ASSERT_EQ(run(train(part)).status, 0);
  fs::remove_all(folder_ / "run");
  const Result resumed = run(train(later, {"--resume"}));
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_TRUE(fs::exists(folder_ / "later/checkpoints/step-00000004"));
  // One that has nothing to go on from says so.
  auto nothing = later;
  nothing.front() = "run.directory=" + path("nothing");
  const Result refused = run(train(nothing, {"--resume"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("no complete checkpoint to resume from"),
                                    HasSubstr("start the run without --resume\n")));
}

}  // namespace
}  // namespace tessera
