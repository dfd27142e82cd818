#pragma once

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "comm/rank_control.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "pipeline/agree_on_lists.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "support/random_batches.h"
#include "train/training_step.h"
#include "verify/layout_run.h"

namespace tessera::testing {

/// Trains a small model for three steps on ranks that share each layer. Rank 1 does not run the
/// update of the second step, though the lists of calls that the ranks have compared have it. Calls
/// `begun` before the first step. Returns the error that ends the work of this
/// rank, with the step; empty if there is none.
inline std::string train_with_skipped_update(RankGroups& groups, const RankControl& control,
                                             const std::function<void()>& begun) {
  LayoutTrial trial{.model = {}, .optimizer = {}, .recompute = {}, .size = {.sequences = 4}};
  trial.model.layers = 1;
  trial.model.hidden_size = 8;
  trial.model.heads = trial.model.kv_heads = 2;
  trial.model.feed_forward_size = 8;
  trial.model.vocabulary_size = 16;
  trial.size.context = 8;
  trial.mesh = groups.mesh();
  trial.overlap = {};  // the list of a rank that begins the update cannot leave it out
  const StepBatches steps =
      random_batches(trial.size, trial.model.vocabulary_size, 3, trial.micro_batches, 1);
  Runtime runtime(host_target(1));
  runtime.join(groups);
  const StepPrograms programs = layout_programs(trial, groups.rank());
  Executor executor(programs.list(), programs.actions(), runtime);
  const ParameterStore store = store_of(programs, executor);
  TrainingStep step(programs, executor, store);
  agree_on_lists(control, executor, programs.actions(), programs.stage_lists());
  store.initialize(1, 1);
  begun();
  for (size_t i = 0; i < steps.size(); ++i) {
    try {
      step.forward_backward(steps[i]);
      if (i == 1 && groups.rank() == 1) continue;
      step.update(trial.optimizer, {.step = static_cast<int64_t>(i) + 1, .steps = 3});
      step.results().wait();
    } catch (const Error& error) {
      return fmt::format("step {}: {}", i + 1, error.what());
    }
  }
  return "";
}

/// Expects the error of rank 0, which waits in the update's first sum, and of rank 1, which waits
/// in the next step. The time of rank 0 is over first.
inline void expect_both_calls(int rank, const std::string& error) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  if (rank == 0) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("step 2: call "), HasSubstr("all_reduce (sum) 'gradient:"),
                      HasSubstr("did not come. Rank 1 waits in call "), HasSubstr("exchanges")));
  } else if (rank == 1) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("step 3: call "), HasSubstr("exchanges: "), HasSubstr("Rank 0 "),
                      HasSubstr("gave up call "), HasSubstr("all_reduce (sum) 'gradient:")));
  } else {
    EXPECT_THAT(error, HasSubstr("step 2: call "));
  }
}

}  // namespace tessera::testing
