#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "metrics/metrics.h"
#include "support/observed_accelerator.h"
#include "support/prepared_data.h"
#include "train/train_options.h"

namespace tessera {
namespace {

using testing::HeldStream;
using testing::ObservedAccelerator;

constexpr int64_t kSteps = 10;

/// Trains on an emulated device that is observed. When a step is told its batches, the results of
/// the step before it are not read yet, if that is one whose results are read late.
class LateResults : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::prepare_small_data(folder_.path());
    testing::write_known_peak(peak(), testing::two_threads(), open_emulated().get());
  }

  RunConfig config(std::vector<std::string> overrides) const {
    overrides.insert(overrides.begin(),
                     {"run.device=\"emulated\"", "run.hardware=\"" + peak().string() + "\"",
                      "checkpoint.every=0", "train.steps=" + std::to_string(kSteps),
                      "optimizer.warmup_steps=1"});
    return parse_config(testing::small_config(folder_.path()), "test", overrides);
  }

  void train(const RunConfig& config, const std::function<void(int64_t step)>& on_batches) {
    TrainOptions options = testing::kQuiet;
    options.open_accelerator = [this](const RunConfig&, const LocalRank&) {
      auto device = std::make_unique<ObservedAccelerator>();
      device_ = device.get();
      return device;
    };
    options.on_batches = [&](int, int64_t step, std::span<const Batch>) { on_batches(step); };
    const TrainReport report = tessera::train(config, options, Logger());
    EXPECT_EQ(report.step, kSteps);
  }

  fs::path peak() const { return folder_ / "emulated.json"; }
  /// The steps whose results are read and written.
  int64_t written() const {
    const fs::path path = folder_.path() / "run/metrics.jsonl";
    return path_exists(path) ? std::ssize(read_metrics(path)) : 0;
  }
  /// The stream of the step's work, which the executor makes last.
  Stream& stream() const { return *device_->streams.back(); }

  TemporaryFolder folder_;
  ObservedAccelerator* device_ = nullptr;
};

TEST_F(LateResults, AreReadWhileTheDeviceHasTheNextStepUnlessTheStateIsNeeded) {
  std::map<int64_t, int64_t> when_issued;
  train(config({"checkpoint.every=3", "train.evaluate_every=4", "train.evaluate_batches=1",
                "run.trace_step=6"}),
        [&](int64_t step) { when_issued[step] = written(); });
  // Steps 3, 6 and 9 are saved, 4 and 8 are evaluated, and 5 comes before the traced one.
  const std::map<int64_t, int64_t> expected{{1, 0}, {2, 0}, {3, 1}, {4, 3}, {5, 4},
                                            {6, 5}, {7, 6}, {8, 6}, {9, 8}, {10, 9}};
  EXPECT_EQ(when_issued, expected);
  EXPECT_EQ(written(), kSteps);
}

/// Holds a stream until the host says that it came to its next step. If the host waits for the
/// stream instead, it is let go after a time, so that the test can fail.
class HeldStep {
 public:
  explicit HeldStep(Stream& stream) {
    std::unique_lock lock(mutex_);
    keeper_ = std::thread([this, &stream] {
      HeldStream held(stream);
      std::unique_lock inner(mutex_);
      holds_ = true;
      changed_.notify_all();
      came_first_ = changed_.wait_for(inner, std::chrono::minutes(1), [&] { return came_; });
    });
    changed_.wait(lock, [&] { return holds_; });
  }
  ~HeldStep() { host_came(); }
  HeldStep(const HeldStep&) = delete;
  HeldStep& operator=(const HeldStep&) = delete;

  /// Lets the stream go on. Returns whether it was held until now.
  bool host_came() {
    {
      const std::scoped_lock lock(mutex_);
      came_ = true;
    }
    changed_.notify_all();
    if (keeper_.joinable()) keeper_.join();
    return came_first_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false, came_ = false, came_first_ = false;
  std::thread keeper_;
};

TEST_F(LateResults, TheHostIssuesTheNextStepWhileTheDeviceHasNotBegunThisOne) {
  for (const char* const graphs : {"true", "false"}) {
    SCOPED_TRACE(graphs);
    std::optional<HeldStep> held;
    std::vector<int64_t> ahead;  // steps that were issued and passed while the device stood still
    train(config({std::string("run.graphs=") + graphs,
                  "run.directory=\"" +
                      (folder_.path() / (std::string("graphs-") + graphs)).string() + "\""}),
          [&](int64_t step) {
            if (held && held->host_came()) ahead.push_back(step - 1);
            held.reset();
            if (step < kSteps) held.emplace(stream());
          });
    EXPECT_EQ(ahead, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

}  // namespace
}  // namespace tessera
