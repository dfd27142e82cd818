#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan/programs.h"
#include "support/operation_run.h"
#include "support/random_batches.h"
#include "train/parity/parity_errors.h"
#include "train/parity/reference_model.h"
#include "verify/layout_run.h"

// What Hugging Face transformers computed, against ranks that share the model. The tolerances are
// those of one rank in transformers_test.cpp.

namespace tessera::testing {
namespace {

/// Training as the reference model was trained, from its weights.
LayoutTrial trial_of(const ReferenceModel& reference, DType compute) {
  LayoutTrial trial{.model = reference.config(),
                    .optimizer = ReferenceModel::optimizer(),
                    .size = {reference.sequences(), reference.context()},
                    .compute = compute,
                    .mesh = {}};
  const StepPrograms programs =
      step_programs(write_training(trial.model, compute, trial.size, {}), OptimizerConfig{});
  for (const ParameterSpec& spec : programs.model.parameters.specs()) {
    std::vector<float> values = reference.expected("initial/" + spec.name);
    const Tensor whole(spec.shape, DType::f32);
    TESSERA_CHECK(std::ssize(values) == whole.elements(), "{}: {} values", spec.name,
                  values.size());
    std::ranges::copy(values, whole.data<float>());
    trial.initial.emplace(spec.name, whole);
  }
  return trial;
}

std::vector<std::vector<Batch>> batches_of(const ReferenceModel& reference, int64_t steps) {
  std::vector<std::vector<Batch>> result;
  for (int64_t step = 0; step < steps; ++step) result.push_back({reference.batch(step)});
  return result;
}

/// Whether a parameter is biases of a router, which have no gradient.
bool is_balanced(const std::string& name) { return name.ends_with("balancing_biases"); }

/// Those of the layouts that divide the heads and experts of a model.
std::vector<MeshSizes> dividing(const ModelConfig& config, std::vector<MeshSizes> layouts) {
  std::erase_if(layouts, [&](const MeshSizes& sizes) {
    const bool compressed = config.attention == AttentionKind::compressed_convolutional;
    const bool heads = (compressed ? config.kv_heads : config.heads) % sizes.tensor == 0;
    return !heads || (config.mixture() && config.experts % sizes.expert != 0);
  });
  return layouts;
}

/// All that divide: 3 sequences of 24 positions, the heads, the experts.
std::vector<MeshSizes> layouts_of(const ReferenceModel& reference) {
  std::vector<MeshSizes> result{{.tensor = 2},
                                {.tensor = 4},
                                {.context = 2},
                                {.context = 3},
                                {.data = {3}},
                                {.tensor = 2, .context = 2},
                                {.tensor = 2, .data = {3}},
                                {.context = 2, .data = {3}},
                                {.tensor = 2, .context = 2, .data = {3}}};
  if (!reference.config().mixture()) return dividing(reference.config(), result);
  for (const MeshSizes& experts :
       std::vector<MeshSizes>{{.tensor = 2, .expert = 2},
                              {.context = 2, .expert = 2},
                              {.data = {3}, .expert = 3},
                              {.tensor = 2, .data = {3}, .expert = 2},
                              {.tensor = 2, .data = {3}, .expert = 6},
                              {.context = 2, .data = {3}, .expert = 3}}) {
    result.push_back(experts);
  }
  return dividing(reference.config(), result);
}

/// Few of them: each axis is split, by itself or beside others. What a rank computes and sends does
/// not depend on the type but for its rounding; all layouts are tried in f64.
std::vector<MeshSizes> few_layouts_of(const ReferenceModel& reference) {
  std::vector<MeshSizes> result{
      {.tensor = 4}, {.context = 3}, {.tensor = 2, .context = 2, .data = {3}}};
  if (reference.config().mixture()) {
    result.push_back({.context = 2, .data = {3}, .expert = 3});
    result.push_back({.tensor = 2, .data = {3}, .expert = 6});
  }
  return dividing(reference.config(), result);
}

std::vector<ExpertExchange> exchanges_of(const MeshSizes& sizes) {
  if (sizes.expert == 1) return {ExpertExchange::automatic};
  return {ExpertExchange::all_gather, ExpertExchange::all_to_all};
}

/// Compares the losses and all gradients of the first step.
void expect_first_step(const LayoutResults& found, const ReferenceModel& reference) {
  const StepResults& losses = found.steps.front().results;
  const double loss = reference.expected("loss")[0];
  EXPECT_NEAR(losses.cross_entropy, loss, kParityTolerance * loss);
  const double balance = reference.expected("balance_loss")[0];
  EXPECT_NEAR(losses.balance, balance, kParityTolerance * balance);
  EXPECT_EQ(balance > 0, reference.config().balance_coefficient > 0);
  for (const auto& [name, gradient] : found.gradients[0]) {
    EXPECT_LT(largest_error(numbers_of(gradient), reference.expected("gradient/" + name)),
              kParityTolerance)
        << name;
  }
}

class TransformersOnRanks : public ::testing::TestWithParam<std::string> {
 protected:
  /// Runs layouts of the model with both exchanges of its experts.
  template <typename Check>
  void on_layouts(const std::vector<MeshSizes>& layouts, DType compute, int64_t steps,
                  Check&& check) {
    LayoutTrial trial = trial_of(reference_, compute);
    const auto batches = batches_of(reference_, steps);
    for (const MeshSizes& sizes : layouts) {
      trial.mesh = Mesh(sizes);
      for (const ExpertExchange exchange : exchanges_of(sizes)) {
        trial.experts.exchange = exchange;
        SCOPED_TRACE(
            fmt::format("{}, {} in {}", trial.mesh.text(), word(exchange), dtype_name(compute)));
        const LayoutResults found = run_layout(trial, batches);
        const auto balanced = std::ranges::count_if(
            trial.initial, [](const auto& weight) { return is_balanced(weight.first); });
        EXPECT_EQ(std::ssize(found.gradients[0]) + balanced, std::ssize(trial.initial));
        check(found);
      }
    }
  }

  const ReferenceModel reference_{GetParam()};
};

TEST_P(TransformersOnRanks, LossesAndEveryGradient) {
  on_layouts(layouts_of(reference_), DType::f64, 1,
             [&](const LayoutResults& found) { expect_first_step(found, reference_); });
}

TEST_P(TransformersOnRanks, WeightsAfterStepsOfAdamW) {
  const auto check = [&](const LayoutResults& found) {
    expect_first_step(found, reference_);
    for (const auto& [name, weight] : found.weights) {
      if (is_balanced(name)) continue;
      EXPECT_LT(largest_error(numbers_of(weight), reference_.expected("trained/" + name)),
                kParityTolerance)
          << name;
    }
  };
  on_layouts(few_layouts_of(reference_), DType::f32, reference_.steps(), check);
}

TEST_P(TransformersOnRanks, GradientsInBfloat16AreAsNearAsTransformersAre) {
  const auto check = [&](const LayoutResults& found) {
    const double loss = reference_.expected("loss")[0];
    EXPECT_NEAR(found.steps.front().results.cross_entropy, loss,
                reference_.loss_tolerance() * loss);
    for (const auto& [name, gradient] : found.gradients[0]) {
      const double error =
          mean_error(numbers_of(gradient), reference_.expected("gradient/" + name));
      const double theirs = reference_.expected_error(name);
      EXPECT_GT(error, 0) << name;
      EXPECT_LT(error, kRoundingSlack * theirs) << name;
    }
  };
  on_layouts(few_layouts_of(reference_), DType::bf16, 1, check);
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersOnRanks,
                         ::testing::ValuesIn(ReferenceModel::names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::testing
