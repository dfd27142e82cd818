#include "ops/router/balance_counts.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/moe_program.h"
#include "ops/router/losses.h"
#include "ops/router/router.h"
#include "support/emulated.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::SmallProgram;

TEST(SetCounts, CountEachSetsChoices) {
  SmallProgram small;
  // Two sets of three tokens with two choices each; -1 and 4 choose no expert.
  const Value indices = small.input<int32_t>({6, 2}, {0, 1, 1, 2, 1, -1, 3, 3, 4, 0, 3, 2});
  const Value counts = set_counts(small.builder(), indices, 4, 2);
  small.run({counts});
  EXPECT_EQ(small.read<int32_t>(counts), (std::vector<int32_t>{1, 3, 1, 0, 1, 0, 1, 3}));
}

TEST(SetCounts, RefusesTokensThatDoNotDivide) {
  Program program;
  Builder builder(program);
  const Value indices = builder.input("indices", {{5, 2}, DType::i32, {}});
  EXPECT_THROW(set_counts(builder, indices, 4, 2), InternalError);
}

std::vector<double> mean_of(const std::vector<double>& sum, const std::vector<int32_t>& counts,
                            const std::optional<testing::Emulation>& emulation = {}) {
  SmallProgram small(1, Kernels::fast, emulation);
  const Shape shape{std::ssize(sum)};
  const Value mean = step_counts(small.builder(), small.input<double>(shape, sum),
                                 small.input<int32_t>(shape, counts));
  small.run({mean});
  return small.read<double>(mean);
}

TEST(StepCounts, AreTheMeanOfTheMicroBatchesSoFar) {
  EXPECT_EQ(mean_of({5, 7, 0}, {5, 7, 0}), (std::vector<double>{5, 7, 0}));  // the first one
  // Three micro-batches of 12 choices.
  EXPECT_EQ(mean_of({9, 24, 3}, {2, 10, 0}), (std::vector<double>{3, 8, 1}));
  EXPECT_EQ(mean_of({0, 0}, {0, 0}), (std::vector<double>{0, 0}));
}

RC_GTEST_PROP(StepCounts, OfTheFirstMicroBatchAreItsCountsOnEveryDevice, ()) {
  const auto experts = *rc::gen::inRange<size_t>(1, 600);
  const CounterRandom random(*rc::gen::arbitrary<uint64_t>(), "counts");
  std::vector<int32_t> counts;
  for (size_t e = 0; e < experts; ++e) {
    counts.push_back(static_cast<int32_t>(random.bits(e) % 1000003));
  }
  const std::vector<double> sum(counts.begin(), counts.end());
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& device) {
    const std::vector<double> mean = mean_of(sum, counts, device);
    RC_ASSERT(mean == sum);
    return mean;
  });
}

/// The loss of sets from its formula, each set by itself.
double loss_of_sets(const std::vector<std::vector<double>>& probabilities,
                    const std::vector<std::vector<int32_t>>& counts, int64_t sets, int64_t tokens,
                    int64_t experts, double scale) {
  const auto layers = static_cast<double>(counts.size());
  double loss = 0;
  for (int64_t s = 0; s < sets; ++s) {
    double sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      double load = 0, probability = 0;
      for (size_t l = 0; l < counts.size(); ++l) {
        load += counts[l][static_cast<size_t>(s * experts + e)];
        for (int64_t t = s * tokens; t < (s + 1) * tokens; ++t) {
          probability += probabilities[l][static_cast<size_t>(t * experts + e)];
        }
      }
      sum += load * probability;
    }
    const auto each = static_cast<double>(tokens);
    loss += scale * static_cast<double>(experts) * sum / (layers * each) / (layers * each) * each;
  }
  return loss;
}

RC_GTEST_PROP(BalanceOfSets, EqualsItsFormula, ()) {
  const bool pooled = *rc::gen::arbitrary<bool>();
  const auto layers = pooled ? *rc::gen::inRange<size_t>(1, 4) : size_t{1};
  const auto sets = *rc::gen::inRange<int64_t>(1, 5);
  const auto tokens =
      *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 40), rc::gen::just<int64_t>(300));
  const auto experts = *rc::gen::inRange<int64_t>(1, 20);
  const CounterRandom random(*rc::gen::arbitrary<uint64_t>(), "balance");
  uint64_t draw = 0;
  std::vector<std::vector<double>> numbers(layers);
  std::vector<std::vector<int32_t>> choices(layers);
  SmallProgram small;
  std::vector<Value> probabilities, counts;
  for (size_t l = 0; l < layers; ++l) {
    for (int64_t i = 0; i < sets * tokens * experts; ++i) {
      numbers[l].push_back(random.uniform(draw++));
    }
    for (int64_t i = 0; i < sets * experts; ++i) {
      choices[l].push_back(static_cast<int32_t>(random.bits(draw++) % 100));
    }
    probabilities.push_back(small.input<double>({sets * tokens, experts}, numbers[l]));
    counts.push_back(small.input<int32_t>({sets, experts}, choices[l]));
  }
  const Value loss = load_balance_loss(small.builder(), probabilities, counts, 0.3, 2,
                                       pooled ? BalanceForm::pooled : BalanceForm::per_layer);
  small.run({loss});
  const double expected =
      loss_of_sets(numbers, choices, sets, tokens, experts, pooled ? 0.3 : 0.15);
  RC_ASSERT(std::abs(small.read<double>(loss)[0] - expected) <= 1e-12 * expected);
}

/// Given counts: of two sets, or the mean of several micro-batches.
testing::FixedInputs given_counts(bool of_sets) {
  const Tensor counts(of_sets ? Shape{2, 4} : Shape{4}, of_sets ? DType::i32 : DType::f64);
  for (int64_t i = 0; i < counts.elements(); ++i) {
    if (of_sets) {
      counts.data<int32_t>()[i] = static_cast<int32_t>(7 * i % 5);
    } else {
      counts.data<double>()[i] = 1.3 * static_cast<double>(i) + 0.7;
    }
  }
  return {{"counts", counts}};
}

TEST(BalanceOfSets, GradientsAgreeWithFiniteDifferences) {
  for (const bool of_sets : {true, false}) {
    check_gradients(
        [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          const Spec spec = of_sets ? Spec{{2, 4}, DType::i32, {}} : Spec{{4}, DType::f64, {}};
          const Value counts = builder.input("counts", spec);
          return {
              load_balance_loss(builder, in, std::vector{counts}, 0.5, 2, BalanceForm::per_layer)};
        },
        {{6, 4}}, [=] { return given_counts(of_sets); });
  }
}

RC_GTEST_PROP(BalanceOfMeans, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  testing::expect_device_agrees(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value counts = builder.input("counts", {{4}, DType::f64, {}});
        const Value probabilities = router_softmax(builder, in[0]);
        return {load_balance_loss(builder, std::vector{probabilities}, std::vector{counts}, 0.5, 2,
                                  BalanceForm::per_layer)};
      },
      {{{*rc::gen::inRange<int64_t>(1, 100), 4}}}, {.fixed = given_counts(false)});
}

}  // namespace
}  // namespace tessera
