#include <algorithm>
#include <limits>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "data/loader.h"
#include "ops/host_target.h"
#include "plan/step_plan.h"
#include "support/prepared_data.h"
#include "train/training_step.h"

namespace tessera {
namespace {

/// Pages that this process had to be given, or given again, without reading a file.
int64_t page_faults() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt;
}

/// Everything that a step of training does, on data from a loader.
class Steps {
 public:
  explicit Steps(const RunConfig& config)
      : config_(config),
        runtime_(host_target(static_cast<int>(config.run.threads))),
        plan_(plan_step_that_fits(config)),
        executor_(plan_.programs.list(), plan_.memory, runtime_),
        store_(store_of(plan_.programs, executor_)),
        step_(plan_.programs, executor_, store_),
        data_(open_data(config.data)),
        loader_(data_, {.rows = config.train.micro_batch}) {
    store_.initialize(config.train.seed, runtime_.threads());
  }

  void run(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<Batch> batches{loader_.next(), loader_.next()};
      step_.forward_backward(batches);
      step_.update(config_.optimizer, {.step = ++done_, .steps = config_.train.steps});
    }
  }

  int64_t arena_bytes() const { return plan_.memory.arena_bytes; }

 private:
  const RunConfig& config_;
  Runtime runtime_;
  StepPlan plan_;
  Executor executor_;
  ParameterStore store_;
  TrainingStep step_;
  TrainingData data_;
  Loader loader_;
  int64_t done_ = 0;
};

TEST(SteadyMemory, StepsReuseThePagesOfTheStepsBefore) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps freed memory back, so that new pages are taken";
#endif
  TemporaryFolder folder;
  testing::prepare_small_data(folder.path(), 256);
  const std::vector<std::string> overrides{"data.context=256", "model.hidden_size=64"};
  const RunConfig config =
      resolve(parse_config(testing::small_config(folder.path()), "test", overrides));
  Steps steps(config);
  ASSERT_GT(steps.arena_bytes(), 1 << 20) << "too small to show";
  constexpr int64_t kSteps = 10;
  steps.run(kSteps);
  // A system may move pages now and then, which shows as faults of some intervals: the best of
  // several counts. Memory that steps give back and take again is in each, some faults a step.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int interval = 0; interval < 4; ++interval) {
    const int64_t before = page_faults();
    steps.run(kSteps);
    least = std::min(least, page_faults() - before);
  }
  EXPECT_LT(least, kSteps) << "page faults of " << kSteps << " steps";
}

}  // namespace
}  // namespace tessera
