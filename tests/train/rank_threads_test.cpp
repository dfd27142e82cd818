#include <mutex>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "plan/run_target.h"
#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "support/two_threads.h"
#include "verify/changed_programs.h"
#include "verify/deviation.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

/// The numbers of threads that ranks have while they compute.
std::set<int> threads_in_use(int threads, int ranks) {
  std::set<int> found;
  std::mutex mutex;
  const LayoutTrial trial{.model = testing::tiny_mixture(1),
                          .size = {.sequences = 4, .context = 8},
                          .mesh = Mesh({.data = {ranks}}),
                          .change =
                              [&](StepPrograms& programs) {
                                testing::run_by(
                                    testing::nodes_of(programs.chunks()[0].program, "token_counts"),
                                    [&](const Operation& counts, const Execution& execution) {
                                      counts.run(execution);
                                      const std::scoped_lock lock(mutex);
                                      found.insert(execution.runtime.threads());
                                    });
                              },
                          .threads = threads};
  run_layout(trial, testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 1, 3));
  return found;
}

TEST(RankThreads, OfRanksAreTheirShareOfTheMachines) {
  EXPECT_EQ(threads_in_use(4, 2), std::set{2});
  EXPECT_EQ(threads_in_use(7, 2), std::set{3});
  EXPECT_EQ(threads_in_use(2, 4), std::set{1});
  RunConfig config;
  config.run.threads = 6;
  EXPECT_EQ(run_target(config).threads, 6);
  EXPECT_EQ(run_target(config, nullptr, 2).threads, 3);
  EXPECT_EQ(run_target(config, nullptr, 4).threads, 1);
  EXPECT_EQ(run_target(config, nullptr, 8).threads, 1);
}

/// Whatever the ranks exchange, and on however many threads each computes.
TEST(RankThreads, AndTheNextRunGiveTheSameBits) {
  for (const ExpertExchange exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{}, {}", word(exchange), dtype_name(compute)));
      LayoutTrial trial{.model = testing::tiny_mixture(2),
                        .size = {.sequences = 4, .context = 16},
                        .compute = compute,
                        .mesh = Mesh({.tensor = 2, .data = {2}, .expert = 4}),
                        .experts = {.exchange = exchange}};
      trial.model.balance_coefficient = 0.02;
      const auto batches =
          testing::random_batches(trial.size, trial.model.vocabulary_size, 3, 2, 3);
      const LayoutResults expected = run_layout(trial, batches);
      for (const int threads : {1, testing::two_threads(), 3 * testing::two_threads()}) {
        trial.threads = threads * trial.mesh.ranks();
        const LayoutResults found = run_layout(trial, batches);
        EXPECT_EQ(first_different_bits(expected, found), std::nullopt) << threads << " a rank";
        EXPECT_TRUE(found.steps == expected.steps) << threads << " a rank";
      }
    }
  }
}

}  // namespace
}  // namespace tessera
