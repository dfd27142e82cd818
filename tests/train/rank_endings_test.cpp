// How runs of several ranks end: by a signal, by an error of one rank, by a full disk.
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "train/rank_runs.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Ranks, WithMoreRowsThanAreReservedEndByThatError) {
  const RunConfig bounded = config(
      "bounded", {"model.experts=8", "model.experts_per_token=2", "model.expert_size=16",
                  "model.feed_forward_size=0", "parallel.expert=4", "parallel.expert_rows_bound=1",
                  "parallel.expert_exchange=\"all_to_all\""});
  EXPECT_THAT(error_of([&] { train_on(4, bounded); }), HasSubstr("parallel.expert_rows_bound"));
}

TEST_F(Ranks, EndWithTheErrorOfTheOneThatThrows) {
  const auto fails = [](int rank, int64_t step) {
    if (rank == 1 && step == 3) throw Error("the third step of rank 1");
  };
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(error_of([&] {
                train_on(ranks, config(fmt::format("fails-{}", ranks)), {.before_step = fails});
              }),
              "the third step of rank 1");
  }
  EXPECT_EQ(metrics("fails-2").size(), 2U);
}

/// The first rank opens the data for all, so no rank is to blame. The folder of the run stays away.
TEST_F(Ranks, EndBeforeTheFirstStepWithTheErrorOfOneRank) {
  const std::vector<std::string> wrong_keys{
      "data.directory=\"" + (folder_->path() / "nowhere").string() + "\"",
      "run.tuned_products=\"" + (folder_->path() / "nowhere.json").string() + "\""};
  for (const std::string& key : wrong_keys) {
    SCOPED_TRACE(key);
    const RunConfig wrong = config("not-begun", {key});
    const std::string alone = error_of([&] { train_on(1, wrong); });
    EXPECT_THAT(alone, HasSubstr("nowhere"));
    EXPECT_EQ(error_of([&] { train_on(4, wrong); }), alone);
    EXPECT_FALSE(fs::exists(folder("not-begun")));
  }
}

/// The other rank is done with its passes by then, but for sums of gradients that it has begun.
TEST_F(Ranks, SaveTheStateBeforeAStepInWhichOneFails) {
  TrainOptions options;
  options.on_batches = [](int rank, int64_t step, std::span<const Batch> batches) {
    if (rank != 1 || step != 3) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const_cast<Batch&>(batches.back()).tokens[0] = 1000;  // beyond the vocabulary
  };
  const std::string problem =
      error_of([&] { train_on(2, config("fails-late", {"train.micro_batch=1"}), options); });
  EXPECT_THAT(problem, AllOf(HasSubstr("1000"), HasSubstr("step 2 was saved")));
  EXPECT_TRUE(fs::exists(checkpoint("fails-late", 2)));
}

TEST_F(Ranks, EndWhenOneDoesNotComeInTime) {
  const auto stays_away = [](int rank, int64_t step) {
    if (rank == 1 && step == 2) std::this_thread::sleep_for(std::chrono::seconds(2));
  };
  const std::string problem = error_of([&] {
    train_on(2, config("stays-away", {"run.rank_timeout=1"}), {.before_step = stays_away});
  });
  EXPECT_THAT(problem, AllOf(HasSubstr("rank 1"), HasSubstr("did not come"), HasSubstr("1 s")));
  EXPECT_EQ(metrics("stays-away").size(), 1U);
}

TEST_F(Ranks, AreEndedByASignalAtAnyMoment) {
  for (const int wait : {0, 3, 10, 30, 60, 100}) {
    const std::string run = fmt::format("interrupted-{}", wait);
    TrainReport report;
    {
      const InterruptGuard guard;
      const std::jthread sender([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(wait));
        std::raise(SIGINT);
      });
      report = train_on(4, config(run, {"train.steps=100000"}));
    }
    EXPECT_TRUE(report.interrupted);
    EXPECT_TRUE(fs::exists(checkpoint(run, report.step))) << report.step;
    EXPECT_EQ(metrics(run).size(), static_cast<size_t>(report.step));
  }
}

/// The signal comes within the evaluation: it is left, and no further step follows.
TEST_F(Ranks, LeaveAnEvaluationAtASignal) {
  for (const int ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    const std::string run = fmt::format("left-evaluation-{}", ranks);
    std::atomic<int64_t> batches = 0;
    const auto signal = [&](int rank, int64_t batch) {
      if (rank != 0) return;
      batches = batch + 1;
      if (batch == 1) std::raise(SIGTERM);
    };
    TrainReport report;
    {
      const InterruptGuard guard;
      report = train_on(ranks, config(run, {"train.evaluate_every=5", "train.evaluate_batches=6"}),
                        {.before_evaluation_batch = signal});
    }
    EXPECT_TRUE(report.interrupted);
    EXPECT_EQ(report.step, 5);
    EXPECT_EQ(batches, 2);
    ASSERT_EQ(metrics(run).size(), 5U);
    EXPECT_FALSE(metrics(run).back().held_out_loss.has_value());
    EXPECT_TRUE(fs::exists(checkpoint(run, 5)));
  }
}

/// On devices a step is finished while the next one is computed. Ranks that hear of a signal at
/// different times finish the same steps.
TEST_F(Ranks, OnDevicesSaveTheStepThatTheySay) {
  const std::vector<std::string> keys{"run.device=\"emulated\"", "train.precision=\"fp32\"",
                                      "run.hardware=\"\"", "train.micro_batch=1"};
  std::vector<std::string> all = keys;
  all.insert(all.end(), {"checkpoint.every=1", "checkpoint.keep=100", "train.stop_after=8"});
  train_on(2, config("every-step", all));
  for (const int64_t at : {3, 6}) {
    const std::string run = fmt::format("heard-apart-{}", at);
    std::vector<std::string> some = keys;
    some.emplace_back("checkpoint.every=0");
    TrainReport report;
    {
      const InterruptGuard guard;
      const auto signal = [&](int rank, int64_t step) {
        if (rank == 1 && step == at) std::raise(SIGTERM);
      };
      report = train_on(2, config(run, some), {.before_step = signal});
    }
    EXPECT_TRUE(report.interrupted);
    EXPECT_EQ(tensors(run, report.step), tensors("every-step", report.step)) << report.step;
  }
}

TEST_F(Ranks, EndWhenTheDiskIsFull) {
  // No checkpoint fits.
  std::string problem;
  {
    const FileSizeLimit limit(16 << 10);
    problem = error_of([&] {
      train_on(4, config("full", {"parallel.tensor=2", "checkpoint.every=3"}));
    });
  }
  EXPECT_THAT(problem, HasSubstr("cannot write"));
  EXPECT_FALSE(fs::exists(checkpoint("full", 3)));
  EXPECT_EQ(metrics("full").size(), 3U);
}

TEST_F(Ranks, EndTogetherWhereOneCannotWriteItsRecords) {
  // From the fourth step on no file may grow beyond the metrics. Only the first rank has any.
  std::optional<FileSizeLimit> limit;
  const auto fill = [&](int rank, int64_t step) {
    if (rank == 0 && step == 4) limit.emplace(fs::file_size(folder("filled") / "metrics.jsonl"));
  };
  const std::string problem = error_of(
      [&] { train_on(4, config("filled", {"parallel.tensor=2"}), {.before_step = fill}); });
  limit.reset();
  EXPECT_THAT(problem,
              AllOf(HasSubstr("cannot write " + (folder("filled") / "metrics.jsonl").string()),
                    HasSubstr("step 4 could not be saved: rank 0: cannot write")));
  EXPECT_EQ(metrics("filled").size(), 3U);
}

TEST_F(Ranks, SaveBeforeDamagedDataEndsThem) {
  const fs::path held_out = folder_->path() / "data/held_out-00000.npy";
  flip(held_out);
  const std::string problem = error_of([&] {
    train_on(4, config("damaged", {"checkpoint.every=0", "train.evaluate_every=3"}));
  });
  flip(held_out);
  EXPECT_THAT(problem, AllOf(HasSubstr("held_out-00000.npy"), HasSubstr("(step 3 was saved")));
  EXPECT_TRUE(fs::exists(checkpoint("damaged", 3)));
  EXPECT_EQ(metrics("damaged").size(), 3U);
}

}  // namespace
}  // namespace tessera
