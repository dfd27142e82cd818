// Biases that balance routers: who changes them, when, and that they balance.
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/host_target.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "support/random_batches.h"
#include "support/run_program.h"
#include "support/small_family.h"
#include "train/training_step.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

constexpr int64_t kSequences = 4, kContext = 16;

ModelConfig model_with(BiasBalancing balancing, double rate) {
  ModelConfig config = testing::small_family(Family::zaya);
  config.initialization_deviation = 0.3;
  config.balance_biases = balancing;
  config.balance_bias_rate = rate;
  return config;
}

std::vector<Batch> batches_of(int micro_batches, uint64_t seed) {
  return testing::random_batches({.sequences = kSequences, .context = kContext}, 23, 1,
                                 micro_batches, seed)[0];
}

/// A model in f64 that trains step by step.
class BalancedRun {
 public:
  explicit BalancedRun(const ModelConfig& config, const Recompute& recompute = {})
      : programs_(step_programs(
            write_training(config, DType::f64, {kSequences, kContext}, recompute), {})),
        runtime_(host_target(2)),
        executor_(programs_.list(), programs_.actions(), runtime_),
        store_(store_of(programs_, executor_)),
        step_(programs_, executor_, store_) {
    store_.initialize(3, 2);
  }

  StepResults train(int micro_batches, int64_t number) {
    step_.forward_backward(batches_of(micro_batches, static_cast<uint64_t>(number)));
    step_.update({.warmup_steps = 0}, {.step = number, .steps = 1000});
    return step_.results().wait();
  }
  /// The same with a gradient that is NaN.
  StepResults train_with_nan(int micro_batches, int64_t number) {
    begin_only(micro_batches, number);
    store_.memory("embedding.weight", Kept::gradient).data<double>()[3] = std::nan("");
    step_.update({.warmup_steps = 0}, {.step = number, .steps = 1000});
    return step_.results().wait();
  }
  /// The forward and backward passes of a step that is not completed.
  void begin_only(int micro_batches, int64_t number) {
    step_.forward_backward(batches_of(micro_batches, static_cast<uint64_t>(number)));
  }

  std::vector<double> biases(int layer) const {
    const Tensor kept =
        store_.memory("layers." + std::to_string(layer) + ".router.balancing_biases", Kept::master);
    return {kept.values<double>().begin(), kept.values<double>().end()};
  }
  /// How many tokens of the last step chose each class.
  std::vector<double> counts(int layer) const {
    const Tensor sum =
        executor_.tensor("sum:expert_tokens." + std::to_string(layer), programs_.update_number());
    return {sum.values<double>().begin(), sum.values<double>().end()};
  }
  std::map<std::string, std::vector<double>> weights() const {
    std::map<std::string, std::vector<double>> all;
    for (const ParameterSpec& spec : store_.parameters()) {
      const auto values = store_.memory(spec.name, Kept::master).values<double>();
      all[spec.name] = {values.begin(), values.end()};
    }
    return all;
  }

 private:
  StepPrograms programs_;
  Runtime runtime_;
  Executor executor_;
  ParameterStore store_;
  TrainingStep step_;
};

double sum_of(const std::vector<double>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

TEST(BiasBalancing, BeginsAtZeroAndAtMinusOneForTheSkipClass) {
  const BalancedRun run(model_with(BiasBalancing::controller, 1e-3));
  EXPECT_EQ(run.biases(1), std::vector<double>({0, 0, 0, 0, 0, 0, 0, 0, -1}));
}

/// AdamW's first step goes by the rate against the gradient's sign, whatever its size.
TEST(BiasBalancing, TheControllersFirstStepIsTheRateAgainstTheDeviation) {
  constexpr double kRate = 0.01;
  BalancedRun run(model_with(BiasBalancing::controller, kRate));
  const std::vector<double> before = run.biases(0);
  run.train(1, 1);
  const std::vector<double> after = run.biases(0);
  const std::vector<double> counts = run.counts(0);
  const double total = sum_of(counts);
  EXPECT_EQ(total, kSequences * kContext);
  bool rises = false, falls = false;
  for (size_t c = 0; c < counts.size(); ++c) {
    const double share = counts[c] / total - 1.0 / static_cast<double>(counts.size());
    const double expected = share > 0 ? -kRate : kRate;  // 64 tokens never divide by 9
    EXPECT_NEAR(after[c] - before[c], expected, 1e-6) << c;
    (share > 0 ? falls : rises) = true;
  }
  EXPECT_TRUE(rises && falls);
}

/// Three micro-batches by hand, from the counts that a run with one micro-batch a step has.
TEST(BiasBalancing, TheControllerStepsOnceForEachMicroBatch) {
  constexpr double kRate = 0.01;
  BalancedRun run(model_with(BiasBalancing::controller, kRate));
  std::vector<double> bias = run.biases(1), first(bias.size()), second(bias.size());
  for (int step = 1; step <= 3; ++step) {
    run.train(1, step);
    const std::vector<double> counts = run.counts(1);
    for (size_t c = 0; c < counts.size(); ++c) {
      const double g = counts[c] / 64 - 1.0 / 9;
      first[c] = 0.9 * first[c] + 0.1 * g;
      second[c] = 0.999 * second[c] + 0.001 * g * g;
      const double mean = first[c] / (1 - std::pow(0.9, step));
      const double deviation = std::sqrt(second[c] / (1 - std::pow(0.999, step)));
      bias[c] -= kRate * mean / (deviation + 1e-8);
    }
    for (size_t c = 0; c < bias.size(); ++c) EXPECT_NEAR(run.biases(1)[c], bias[c], 1e-12) << c;
  }
  // Two more in one step: two more steps of the controller, each of at most about the rate.
  const std::vector<double> before = run.biases(1);
  run.train(2, 4);
  double moved = 0;
  for (size_t c = 0; c < before.size(); ++c) {
    moved = std::max(moved, std::abs(run.biases(1)[c] - before[c]));
  }
  EXPECT_GT(moved, kRate);
  EXPECT_LT(moved, 3 * kRate);
}

TEST(BiasBalancing, TheSignFormMovesOnceAStepByTheRate) {
  constexpr double kRate = 0.25;
  BalancedRun run(model_with(BiasBalancing::sign, kRate));
  const std::vector<double> before = run.biases(0);
  run.train(3, 1);
  const std::vector<double> after = run.biases(0);
  const std::vector<double> counts = run.counts(0);
  const double total = sum_of(counts);
  EXPECT_EQ(total, 3 * kSequences * kContext);
  for (size_t c = 0; c < counts.size(); ++c) {
    const double share = counts[c] - total / 9;
    EXPECT_EQ(after[c] - before[c], share > 0 ? -kRate : share < 0 ? kRate : 0) << c;
  }
}

/// Any mixture may be balanced so. Two experts a token, no skip class, a linear router.
TEST(BiasBalancing, BalancesOtherFamilies) {
  ModelConfig config = testing::small_family(Family::olmoe);
  config.initialization_deviation = 0.3;
  config.balance_coefficient = 0;
  config.balance_bias_rate = 0.125;
  for (const BiasBalancing balancing : {BiasBalancing::controller, BiasBalancing::sign}) {
    config.balance_biases = balancing;
    BalancedRun run(config);
    EXPECT_EQ(run.biases(1), std::vector<double>(8));
    EXPECT_FALSE(run.train(1, 1).skipped.has_value());
    const std::vector<double> counts = run.counts(1);
    EXPECT_EQ(sum_of(counts), 2 * kSequences * kContext);
    for (size_t e = 0; e < counts.size(); ++e) {
      const double above = counts[e] - 2.0 * kSequences * kContext / 8;
      EXPECT_NEAR(run.biases(1)[e], above > 0 ? -0.125 : above < 0 ? 0.125 : 0, 1e-6) << e;
    }
  }
}

/// Recomputed layers neither choose by the changed biases nor change them again.
TEST(BiasBalancing, RecomputationChangesNothing) {
  for (const BiasBalancing balancing : {BiasBalancing::controller, BiasBalancing::sign}) {
    // A rate at which another choice would be certain.
    BalancedRun plain(model_with(balancing, 0.5));
    BalancedRun again(model_with(balancing, 0.5), {true, true, true, true});
    for (int step = 1; step <= 3; ++step) {
      EXPECT_EQ(plain.train(2, step), again.train(2, step));
    }
    EXPECT_EQ(plain.weights(), again.weights());
  }
}

/// Neither what the optimizer nor what the forward passes changed is kept.
TEST(BiasBalancing, AStepThatIsNotFiniteChangesNothing) {
  for (const BiasBalancing balancing : {BiasBalancing::controller, BiasBalancing::sign}) {
    BalancedRun run(model_with(balancing, 0.1));
    run.train(1, 1);
    const auto before = run.weights();
    EXPECT_FALSE(run.train_with_nan(1, 2).updated);
    EXPECT_EQ(run.weights(), before) << word(balancing);
    EXPECT_TRUE(run.train(1, 3).updated);
    EXPECT_NE(run.weights(), before);
  }
}

/// What is kept between steps is that of the last completed one.
TEST(BiasBalancing, AStepThatIsNotCompletedLeavesNoTrace) {
  BalancedRun run(model_with(BiasBalancing::controller, 0.1));
  run.train(1, 1);
  const auto before = run.weights();
  run.begin_only(2, 2);
  EXPECT_EQ(run.weights(), before);
}

/// The fullest expert over the mean of the experts, the mean of the last of some steps.
double load_after(const ModelConfig& config, int steps) {
  constexpr int kLast = 20;
  BalancedRun run(config);
  double load = 0;
  for (int step = 1; step <= steps; ++step) {
    const double own = run.train(1, step).expert_load;
    if (step > steps - kLast) load += own / kLast;
  }
  return load;
}

TEST(BiasBalancing, EvensTheLoad) {
  constexpr int kSteps = 200;
  const double none = load_after(model_with(BiasBalancing::none, 1e-3), kSteps);
  EXPECT_GT(none, 2.5);
  for (const BiasBalancing balancing : {BiasBalancing::controller, BiasBalancing::sign}) {
    EXPECT_LT(load_after(model_with(balancing, 2e-3), kSteps), 0.75 * none) << word(balancing);
  }
}

}  // namespace
}  // namespace tessera
