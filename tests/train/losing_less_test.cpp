// What may fail while a run trains: little of it is worth the run.
#include <cmath>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "metrics/metrics.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/names_in.h"
#include "support/prepared_data.h"
#include "train/run_lock.h"
#include "train/train_options.h"
#include "train/trainer.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kQuiet;
using testing::kResume;
using ::testing::Not;

/// The process without the right to write everywhere, while it lives.
class Unprivileged {
 public:
  Unprivileged() {
    if (::geteuid() == 0) changed_ = ::seteuid(65534) == 0;
  }
  ~Unprivileged() {
    if (changed_) (void)!::seteuid(0);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  bool changed_ = false;
};

class LosingLess : public ::testing::Test {
 protected:
  void SetUp() override { testing::prepare_small_data(folder_.path()); }

  RunConfig config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.steps=6", "optimizer.warmup_steps=1",
                                         "checkpoint.every=2", "run.tensorboard=false"});
    return parse_config(testing::small_config(folder_.path()), "test", overrides);
  }
  fs::path run() const { return folder_ / "run"; }
  bool saved(int64_t step) const {
    return fs::exists(run() / fmt::format("checkpoints/step-{:08}", step));
  }
  /// What a run that reaches its end writes to standard error.
  static std::string log_of(const RunConfig& config, const TrainOptions& options) {
    ::testing::internal::CaptureStderr();
    const TrainReport report = train(config, options, Logger());
    EXPECT_EQ(report.step, config.train.steps);
    return ::testing::internal::GetCapturedStderr();
  }
  static size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  }

  TemporaryFolder folder_;
};

TEST_F(LosingLess, WhatStandsBesideTheMetricsEndsNoRun) {
  for (const char* name : {"trace.json", "metrics.csv", "loss.svg"}) {
    fs::create_directories(run() / name / "in-the-way");
  }
  folder_.write("run/tensorboard", "in the way");
  const std::string log =
      log_of(config({"run.csv=true", "run.tensorboard=true", "run.trace_step=2"}), kQuiet);
  for (const char* warning : {"the trace was not written", "the lines of metrics.csv are written",
                              "TensorBoard's events are written", "loss.svg was not drawn"}) {
    EXPECT_EQ(count(log, warning), 1U) << warning << " in\n" << log;
  }
  EXPECT_TRUE(saved(6));
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").size(), 6U);
}

TEST_F(LosingLess, AnOldCheckpointThatStaysEndsNoRun) {
  fs::permissions(folder_.path(), fs::perms(0755));
  train(config({"train.stop_after=2"}), kQuiet, Logger());
  const fs::path locked = run() / "checkpoints/step-00000002/locked";
  fs::create_directories(locked / "in-the-way");
  for (const auto& entry : fs::recursive_directory_iterator(run())) {
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms(0777));
    if (entry.is_regular_file()) fs::permissions(entry.path(), fs::perms(0666));
  }
  fs::permissions(run(), fs::perms(0777));
  fs::permissions(locked, fs::perms(0555));
  std::string log;
  {
    const Unprivileged user;
    log = log_of(config({"checkpoint.keep=1", "checkpoint.every=1"}), kResume);
  }
  EXPECT_EQ(count(log, "old checkpoints were not removed"), 1U) << log;
  EXPECT_TRUE(saved(6));
  EXPECT_FALSE(saved(4)) << "others go as before";
  fs::permissions(run() / "checkpoints/step-00000002.deleted/locked", fs::perms(0777));
}

/// Lines before the first step, up to a little less than `bytes`: they stay in front.
void write_long_metrics(const fs::path& path, size_t bytes) {
  StepMetrics metrics{.step = 0};
  {
    MetricsFile file(path, 0);
    file.append(metrics);
  }
  const std::string line = read_file(path);
  std::string text;
  while (text.size() + 3 * line.size() < bytes) text += line;
  write_file(path, text);
}

TEST_F(LosingLess, ARunWhoseMetricsCannotBeWrittenSavesBeforeItEnds) {
  // As on a full disk, but that the checkpoint's files are smaller than the metrics.
  constexpr size_t kLimit = 4 << 20;
  fs::create_directories(run());
  write_long_metrics(run() / "metrics.jsonl", kLimit);
  std::string problem;
  {
    const FileSizeLimit limit(kLimit);
    problem = error_of([&] { train(config({"checkpoint.every=0"}), kQuiet, Logger()); });
  }
  EXPECT_THAT(problem, AllOf(HasSubstr("cannot write " + (run() / "metrics.jsonl").string()),
                             HasSubstr("was saved: go on from it with --resume")));
  const int64_t step = read_metrics(run() / "metrics.jsonl").back().step + 1;
  EXPECT_TRUE(saved(step)) << step;
  // The line of that step is in the checkpoint, and the next start writes it, also one that has
  // nothing else to do.
  const std::string here = "train.stop_after=" + std::to_string(step);
  EXPECT_FALSE(std::isnan(train(config({here, "run.csv=true"}), kResume, Logger()).loss));
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").back().step, step);
  EXPECT_THAT(read_file(run() / "metrics.csv"), HasSubstr("\n" + std::to_string(step) + ","));
}

TEST_F(LosingLess, ARunWhoseFolderIsMovedAwayWritesNothingIntoTheOneThatFollows) {
  for (const char* every : {"checkpoint.every=2", "checkpoint.every=0"}) {
    const fs::path moved = folder_ / "moved";
    std::optional<RunLock> other;
    TrainOptions options = kQuiet;
    options.before_step = [&](int, int64_t step) {
      if (step != 4) return;
      fs::rename(run(), moved);
      other.emplace(run(), Logger());
    };
    const std::string problem = error_of([&] { train(config({every}), options, Logger()); });
    EXPECT_THAT(problem, AllOf(HasSubstr(run().string() + " was moved to " + moved.string()),
                               HasSubstr("is held by process")));
    EXPECT_EQ(testing::names_in(run()), std::vector<std::string>{"run.lock"});
    EXPECT_EQ(read_metrics(moved / "metrics.jsonl").size(), 3U);
    fs::remove_all(moved);
  }
}

TEST_F(LosingLess, WhatCannotBeWrittenIsFoundBeforeTheFirstStep) {
  const auto refusal = [&](const std::string& in_the_way, std::vector<std::string> more) {
    folder_.write("run/" + in_the_way, "in the way");
    TrainOptions options = kQuiet;
    options.before_step = [](int, int64_t) { FAIL() << "it trained"; };
    const std::string problem = error_of([&] { train(config(more), options, Logger()); });
    fs::remove_all(run());
    return problem;
  };
  EXPECT_THAT(refusal("checkpoints", {"checkpoint.every=0"}), HasSubstr("run/checkpoints"));
  folder_.write("run/trace.json/file", "in the way");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train(config({"run.trace_step=6", "train.stop_after=1"}), kQuiet, Logger()).step, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the trace was not written"));
  fs::remove_all(run());
  fs::create_directories(run());
  fs::create_symlink("nowhere", run() / "checkpoints");
  EXPECT_THAT(error_of([&] { train(config(), kQuiet, Logger()); }),
              HasSubstr("checkpoints is a link to nowhere, which is not there"));
  EXPECT_THAT(error_of([&] { train(config(), kResume, Logger()); }),
              HasSubstr("checkpoints is a link to nowhere, which is not there"));
  EXPECT_FALSE(fs::exists(run() / "metrics.jsonl"));
}

/// Flips a bit in the middle of a file.
void damage(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(path, bytes);
}

TEST_F(LosingLess, ARunWhoseDataIsDamagedSavesBeforeItEnds) {
  // A shard of several blocks, the first of which are whole.
  fs::remove_all(folder_ / "data");
  testing::prepare_small_data(folder_.path(), 32, 6000);
  damage(folder_ / "data/train-00000.npy");
  const auto many = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"train.steps=100", "train.micro_batch=16", "train.global_batch=64"});
    return config(more);
  };
  const RunConfig once = many({"checkpoint.every=0"});
  const std::string problem = error_of([&] { train(once, kQuiet, Logger()); });
  EXPECT_THAT(problem, HasSubstr("train-00000.npy"));
  const auto steps = read_metrics(run() / "metrics.jsonl");
  ASSERT_FALSE(steps.empty());
  EXPECT_TRUE(saved(steps.back().step)) << steps.back().step;
  EXPECT_THAT(problem, HasSubstr(fmt::format("(step {} was saved: go on", steps.back().step)));
  // Again nothing can be done, and nothing is lost.
  EXPECT_THAT(error_of([&] { train(once, kResume, Logger()); }), HasSubstr("train-00000.npy"));
  damage(folder_ / "data/train-00000.npy");  // which mends it
  EXPECT_EQ(train(many({"train.stop_after=60"}), kResume, Logger()).step, 60);
}

TEST_F(LosingLess, HeldOutDataThatIsDamagedEndsARunAfterItSaved) {
  damage(folder_ / "data/held_out-00000.npy");
  const std::string problem = error_of([&] {
    train(config({"checkpoint.every=0", "train.evaluate_every=3"}), kQuiet, Logger());
  });
  EXPECT_THAT(problem, AllOf(HasSubstr("held_out-00000.npy"),
                             HasSubstr("the held-out loss of step 3 is lost"),
                             HasSubstr("(step 3 was saved")));
  EXPECT_TRUE(saved(3));
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").size(), 3U);
}

TEST_F(LosingLess, ATokenizerThatIsGoneKeepsNoRunFromSaving) {
  train(config(), kQuiet, Logger());
  const std::string whole = read_file(run() / "checkpoints/step-00000006/tokenizer.json");
  EXPECT_EQ(whole, read_file(folder_ / "data/tokenizer.json"));
  // A run in which the file goes while it trains: on a thread that waits for its first checkpoint.
  const fs::path other = folder_ / "other";
  bool went_in_time = false;
  {
    const std::jthread remover([&](const std::stop_token& stop) {
      while (!fs::exists(other / "checkpoints/step-00000050")) {
        if (stop.stop_requested()) return;
        std::this_thread::yield();
      }
      fs::remove(folder_ / "data/tokenizer.json");
      went_in_time = !fs::exists(other / "checkpoints/step-00000200");
    });
    train(config({"run.directory=\"" + other.string() + "\"", "checkpoint.keep=100",
                  "checkpoint.every=50", "train.steps=200"}),
          kQuiet, Logger());
  }
  EXPECT_TRUE(went_in_time);
  EXPECT_EQ(read_file(other / "checkpoints/step-00000200/tokenizer.json"), whole);
}

TEST_F(LosingLess, ADamagedFileBesideTheTensorsCostsNoTraining) {
  train(config({"train.stop_after=2"}), kQuiet, Logger());
  damage(run() / "checkpoints/step-00000002/tokenizer.json");
  train(config(), kResume, Logger());
  EXPECT_EQ(read_file(run() / "checkpoints/step-00000006/tokenizer.json"),
            read_file(folder_ / "data/tokenizer.json"));
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").size(), 6U);
}

TEST_F(LosingLess, MetricsThatAreMissingAtAResumeAreSaidAndTheCsvIsKept) {
  train(config({"train.stop_after=4", "run.csv=true"}), kQuiet, Logger());
  const std::string csv = read_file(run() / "metrics.csv");
  const std::string lines = read_file(run() / "metrics.jsonl");
  const size_t second_line = lines.find('\n') + 1;
  write_file(run() / "metrics.jsonl", lines.substr(0, second_line));
  train(config({"run.csv=true", "train.stop_after=5"}), kResume, Logger());
  const std::string log = log_of(config({"run.csv=true"}), kResume);
  EXPECT_THAT(log, HasSubstr("metrics.jsonl lacks 3 of the 5 steps"));
  EXPECT_FALSE(fs::exists(run() / "metrics-2.csv")) << "what is made anew is kept once";
  EXPECT_EQ(read_file(run() / "metrics-1.csv"), csv);
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").size(), 3U);
}

TEST_F(LosingLess, DataThatMovedIsSaidAtAResume) {
  train(config({"train.stop_after=2"}), kQuiet, Logger());
  fs::rename(folder_ / "data", folder_ / "moved");
  const std::string log =
      log_of(config({"data.directory=\"" + (folder_ / "moved").string() + "\""}), kResume);
  EXPECT_THAT(log, HasSubstr("data.directory changes from"));
}

TEST_F(LosingLess, WhatChangesAtAResumeIsSaid) {
  train(config({"train.stop_after=2"}), kQuiet, Logger());
  const std::string log =
      log_of(config({"train.evaluate_every=3", "train.evaluate_batches=2", "train.steps=5",
                     "checkpoint.keep=7", "optimizer.beta2=0.9", "run.csv=true"}),
             kResume);
  for (const char* change :
       {"train.evaluate_every changes from 0 to 3", "train.evaluate_batches changes from 8 to 2",
        "train.steps changes from 6 to 5", "train.stop_after changes from 2 to 0",
        "checkpoint.keep changes from 2 to 7", "run.csv changes from false to true",
        "optimizer.beta2 changes from"}) {
    EXPECT_THAT(log, HasSubstr(change));
  }
  EXPECT_THAT(log, Not(HasSubstr("checkpoint.every changes")));
  EXPECT_THAT(log, Not(HasSubstr("data.directory changes")));
}

TEST_F(LosingLess, ATraceBeyondTheEndIsAWarning) {
  EXPECT_THAT(log_of(config({"run.trace_step=7"}), kQuiet),
              HasSubstr("run.trace_step has no effect: the run ends after step 6: no trace"));
}

TEST_F(LosingLess, TheWeightsThatARunBeganWithStayRecorded) {
  train(config(), kQuiet, Logger());
  const auto later = [&](const std::string& initial, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run.directory=\"" + (folder_ / "later").string() + "\"",
                               "checkpoint.initial=\"" + initial + "\""});
    return config(more);
  };
  const std::string began_with = run().string();
  train(later(began_with, {"train.stop_after=2"}), kQuiet, Logger());
  fs::remove_all(run());  // nothing of it is needed any more
  const std::string log = log_of(later("elsewhere"), kResume);
  EXPECT_THAT(log, HasSubstr("checkpoint.initial = \"elsewhere\" changes nothing"));
  const std::string recorded = "initial = \"" + began_with + "\"";
  for (const char* file : {"later/config.toml", "later/checkpoints/step-00000006/config.toml"}) {
    EXPECT_THAT(read_file(folder_ / file), HasSubstr(recorded)) << file;
  }
}

}  // namespace
}  // namespace tessera
