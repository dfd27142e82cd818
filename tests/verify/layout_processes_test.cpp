// The ranks of a layout as processes, each in a thread of this process.
#include "verify/layout_processes.h"

#include <gtest/gtest.h>

#include "comm/tcp_support.h"
#include "support/bits.h"
#include "support/random_batches.h"
#include "verify/changed_programs.h"
#include "verify/layout_trials.h"

namespace tessera {
namespace {

class LayoutProcessesTest : public ::testing::Test {
 protected:
  LayoutProcessesTest() {
    trial_.model = laid_out_mixture();
    trial_.size = {.sequences = 4, .context = 8};
  }

  /// Two steps of four ranks that are processes.
  LayoutResults by_processes() const {
    LayoutResults results;
    testing::run_by_tcp(4, [&](Processes& processes) {
      {
        LayoutProcesses ranks(RunConfig(), trial_.mesh, processes);
        ranks.begin(trial_, batches_);
        if (ranks.is_first()) {
          results = ranks.run(trial_);
          ranks.finish();
        } else {
          ranks.serve();
        }
      }
      testing::end_well(processes);
    });
    return results;
  }

  static void expect_equal(const NamedTensors& found, const NamedTensors& expected) {
    ASSERT_FALSE(expected.empty());
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_EQ(testing::bits_of(found.at(name).values<double>()),
                testing::bits_of(tensor.values<double>()))
          << name;
    }
  }

  LayoutTrial trial_{.model = {}, .mesh = Mesh({.tensor = 2, .data = {2}, .expert = 2})};
  TrialBatches batches_{
      .whole = testing::random_batches({.sequences = 4, .context = 8}, 32, 2, 2, 3), .parts = {}};
};

/// Of parameters that are split in uneven pieces, and of states that are shared out: a cut goes
/// through the embedding.
TEST_F(LayoutProcessesTest, GiveWhatThreadsGive) {
  trial_.model.vocabulary_size = 1025;
  trial_.shard.optimizer = {"all"};
  const LayoutResults threads = try_layout(trial_, batches_), processes = by_processes();
  EXPECT_EQ(processes.unequal_results, std::nullopt);
  EXPECT_EQ(processes.unequal_copies, std::nullopt);
  EXPECT_EQ(processes.steps, threads.steps);
  EXPECT_EQ(processes.steps.size(), 2);
  ASSERT_EQ(processes.gradients.size(), 2);
  for (size_t step : {0, 1}) expect_equal(processes.gradients[step], threads.gradients[step]);
  expect_equal(processes.weights, threads.weights);
  expect_equal(processes.computed_weights, threads.computed_weights);
}

TEST_F(LayoutProcessesTest, ReportDifferentResults) {
  trial_.change = [](StepPrograms& programs) { testing::add_to_loss_of(1, programs); };
  EXPECT_EQ(by_processes().unequal_results, "ranks report different results of step 1");
}

}  // namespace
}  // namespace tessera
