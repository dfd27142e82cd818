// The token sets of the load-balance loss, in whole models on one rank and on several, against the
// formula in plain loops (ops/router/losses.h) and against one rank that has the same sets.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_batches.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

constexpr double kCoefficient = 0.05;

ModelConfig model_with(BalanceTokens tokens, BalanceForm form = BalanceForm::per_layer) {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 16;
  config.heads = 4;
  config.kv_heads = 4;
  config.vocabulary_size = 32;
  config.experts = 8;
  config.experts_per_token = 3;
  config.expert_size = 12;
  config.initialization_deviation = 0.2;
  config.balance_coefficient = kCoefficient;
  config.balance_form = form;
  config.balance_tokens = tokens;
  return config;
}

LayoutTrial trial_with(const ModelConfig& model, int64_t sequences, const Mesh& mesh) {
  return {.model = model, .size = {.sequences = sequences, .context = 16}, .mesh = mesh};
}

using Batches = std::vector<std::vector<Batch>>;

Batches batches_of(int64_t sequences, int steps, int micro_batches) {
  return testing::random_batches({.sequences = sequences, .context = 16}, 32, steps, micro_batches,
                                 5);
}

/// Some rows of a batch.
Batch rows_of(const Batch& batch, int64_t first, int64_t rows) {
  Batch part{.rows = rows, .context = batch.context};
  const auto cut = [&](const std::vector<int32_t>& from) {
    const auto begin = from.begin() + first * batch.context;
    return std::vector<int32_t>(begin, begin + rows * batch.context);
  };
  part.tokens = cut(batch.tokens);
  part.targets = cut(batch.targets);
  part.document_starts = cut(batch.document_starts);
  part.positions = cut(batch.positions);
  part.target_count = std::ranges::count_if(part.targets, [](int32_t t) { return t >= 0; });
  return part;
}

/// Every batch in `parts` batches, in the order of their rows.
Batches divided(const Batches& whole, int64_t parts) {
  Batches result;
  for (const std::vector<Batch>& step : whole) {
    result.emplace_back();
    for (const Batch& batch : step) {
      const int64_t rows = batch.rows / parts;
      for (int64_t part = 0; part < parts; ++part) {
        result.back().push_back(rows_of(batch, part * rows, rows));
      }
    }
  }
  return result;
}

// ---- the formula

/// What a layer's router has of a set of tokens: Σ_t p_te and the choices of each expert.
struct SetSums {
  std::vector<double> probabilities = std::vector<double>(8);
  std::vector<double> counts = std::vector<double>(8);
  double tokens = 0;

  void add(const SetSums& other) {
    tokens += other.tokens;
    for (size_t e = 0; e < 8; ++e) {
      probabilities[e] += other.probabilities[e];
      counts[e] += other.counts[e];
    }
  }
};

/// Chooses the three most probable experts of each token, in plain loops.
SetSums sums_of(const Tensor& probabilities) {
  SetSums sums;
  sums.tokens = static_cast<double>(probabilities.shape()[0]);
  for (int64_t t = 0; t < probabilities.shape()[0]; ++t) {
    const double* row = probabilities.data<double>() + t * 8;
    std::vector<size_t> order(8);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) { return row[a] > row[b]; });
    for (size_t i = 0; i < 3; ++i) ++sums.counts[order[i]];
    for (size_t e = 0; e < 8; ++e) sums.probabilities[e] += row[e];
  }
  return sums;
}

/// coefficient · E / k · Σ f_e P_e, as a sum over the tokens of `own`. f is of the tokens of
/// `load`.
double loss_of(const SetSums& own, const SetSums& load) {
  double sum = 0;
  for (size_t e = 0; e < 8; ++e) sum += load.counts[e] / load.tokens * own.probabilities[e];
  return kCoefficient * 8 / 3 * sum;
}

/// The sums of a layer by rank and micro-batch, from what the ranks of a data axis computed.
std::vector<std::vector<SetSums>> sums_of_layer(const LayoutResults& results, int layer) {
  std::vector<std::vector<SetSums>> sums;
  for (const ValueStream& rank : results.streams) {
    sums.emplace_back();
    const std::string place =
        "layers." + std::to_string(layer) + " router: router_softmax (forward), output 0";
    for (const size_t entry : rank.indices_of(place)) {
      sums.back().push_back(sums_of(rank.entries()[entry].values));
    }
  }
  return sums;
}

/// The balance loss of a step, a mean over its tokens, of each layer by itself.
double expected_balance(const LayoutResults& results, BalanceTokens set) {
  double total = 0, tokens = 0;
  for (const int layer : {0, 1}) {
    const auto sums = sums_of_layer(results, layer);
    SetSums so_far;
    for (size_t batch = 0; batch < sums[0].size(); ++batch) {
      SetSums all;
      for (const auto& rank : sums) all.add(rank[batch]);
      so_far.add(all);
      if (layer == 0) tokens += all.tokens;
      if (set == BalanceTokens::rank) {
        for (const auto& rank : sums) total += loss_of(rank[batch], rank[batch]);
      } else {
        total += loss_of(all, set == BalanceTokens::micro_batch ? all : so_far);
      }
    }
  }
  return total / tokens;
}

TEST(BalanceTokens, EachSetGivesItsFormula) {
  const Batches batches = batches_of(4, 1, 3);
  std::vector<double> found;
  for (const int ranks : {1, 2, 4}) {
    for (const auto set :
         {BalanceTokens::rank, BalanceTokens::micro_batch, BalanceTokens::global_batch}) {
      LayoutTrial trial = trial_with(model_with(set), 4, Mesh({.data = {ranks}}));
      trial.streams = true;
      const LayoutResults results = run_layout(trial, batches);
      ASSERT_EQ(sums_of_layer(results, 1).at(0).size(), 3U);
      found.push_back(results.steps[0].results.balance);
      EXPECT_NEAR(found.back(), expected_balance(results, set), 1e-13)
          << word(set) << " on " << ranks;
    }
  }
  // On one rank, its micro-batch is that of all; elsewhere the three differ.
  EXPECT_EQ(found[0], found[1]);
  for (const size_t i : {1U, 3U, 4U}) EXPECT_GT(std::abs(found[i] / found[i + 1] - 1), 1e-4) << i;
}

// ---- the same sets on one rank

double largest_deviation(const Tensor& expected, const Tensor& found) {
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double apart = std::abs(expected.data<double>()[i] - found.data<double>()[i]);
    if (std::isnan(apart)) return apart;
    largest = std::max(largest, std::abs(expected.data<double>()[i]));
    difference = std::max(difference, apart);
  }
  return difference / largest;
}

void expect_same_numbers(const LayoutResults& expected, const LayoutResults& found) {
  ASSERT_EQ(expected.steps.size(), found.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
    EXPECT_NEAR(b.balance / a.balance, 1, 1e-12);
    EXPECT_NEAR(b.gradient_norm / a.gradient_norm, 1, 1e-12);
    EXPECT_EQ(expected.steps[i].expert_tokens, found.steps[i].expert_tokens);
  }
  for (const auto& [name, tensor] : expected.gradients[0]) {
    EXPECT_LT(largest_deviation(tensor, found.gradients[0].at(name)), 1e-11) << name;
  }
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(largest_deviation(tensor, found.weights.at(name)), 1e-10) << name;
  }
}

std::vector<MeshSizes> meshes_of_two_data_ranks() {
  return {{.data = {2}},
          {.data = {2}, .expert = 2},
          {.tensor = 2, .data = {2}},
          {.tensor = 2, .data = {2}, .expert = 4},
          {.context = 2, .data = {2}, .expert = 2},
          {.tensor = 2, .context = 2, .data = {2}, .expert = 8}};
}

TEST(BalanceTokens, ARanksMicroBatchIsThatOfOneRankWithMoreMicroBatches) {
  const Batches batches = batches_of(4, 2, 2);
  for (const BalanceForm form : {BalanceForm::per_layer, BalanceForm::pooled}) {
    const ModelConfig model = model_with(BalanceTokens::rank, form);
    const LayoutResults expected = run_layout(trial_with(model, 2, Mesh()), divided(batches, 2));
    for (const MeshSizes& sizes : meshes_of_two_data_ranks()) {
      const Mesh mesh(sizes);
      SCOPED_TRACE(mesh.text());
      expect_same_numbers(expected, run_layout(trial_with(model, 4, mesh), batches));
    }
    const Mesh levels({.data = {2, 2}, .expert = 4});
    expect_same_numbers(run_layout(trial_with(model, 1, Mesh()), divided(batches, 4)),
                        run_layout(trial_with(model, 4, levels), batches));
  }
}

TEST(BalanceTokens, RecomputedLayersCountOnce) {
  const Batches batches = batches_of(4, 2, 2);
  for (const auto set : {BalanceTokens::rank, BalanceTokens::global_batch}) {
    LayoutTrial trial = trial_with(model_with(set), 4, Mesh({.data = {2}, .expert = 2}));
    const LayoutResults expected = run_layout(trial, batches);
    trial.recompute = {.norm = true, .attention = true, .experts = true, .layer = true};
    expect_same_numbers(expected, run_layout(trial, batches));
  }
}

TEST(BalanceTokens, TheGlobalBatchIsThatOfOneRank) {
  const Batches batches = batches_of(4, 2, 3);
  for (const BalanceForm form : {BalanceForm::per_layer, BalanceForm::pooled}) {
    const ModelConfig model = model_with(BalanceTokens::global_batch, form);
    const LayoutResults expected = run_layout(trial_with(model, 4, Mesh()), batches);
    for (const MeshSizes& sizes : meshes_of_two_data_ranks()) {
      const Mesh mesh(sizes);
      SCOPED_TRACE(mesh.text());
      expect_same_numbers(expected, run_layout(trial_with(model, 4, mesh), batches));
    }
  }
}

void expect_equal_bits(const LayoutResults& expected, const LayoutResults& found) {
  EXPECT_EQ(expected.steps, found.steps);
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_TRUE(
        std::ranges::equal(tensor.values<double>(), found.weights.at(name).values<double>()))
        << name;
  }
}

TEST(BalanceTokens, AGlobalBatchOfOneMicroBatchHasTheBitsOfTheMicroBatch) {
  const Batches batches = batches_of(4, 2, 1);
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.tensor = 2, .data = {2}, .expert = 2}}) {
    const auto run = [&](BalanceTokens set) {
      return run_layout(trial_with(model_with(set), 4, Mesh(sizes)), batches);
    };
    expect_equal_bits(run(BalanceTokens::micro_batch), run(BalanceTokens::global_batch));
  }
}

TEST(BalanceTokens, TheCountsOfAStepBeginAtZero) {
  Batches batches = batches_of(4, 1, 3);
  batches.push_back(batches[0]);
  LayoutTrial trial = trial_with(model_with(BalanceTokens::global_batch), 4, Mesh());
  trial.optimizer.learning_rate = trial.optimizer.minimum_learning_rate = 0;  // weights stay
  const LayoutResults results = run_layout(trial, batches);
  EXPECT_EQ(results.steps[0], results.steps[1]);
}

TEST(BalanceTokens, BalancedTokensGiveTheCoefficientInEverySet) {
  for (const int ranks : {1, 2}) {
    for (const auto set :
         {BalanceTokens::rank, BalanceTokens::micro_batch, BalanceTokens::global_batch}) {
      ModelConfig model = model_with(set);
      model.forced_uniform_routing = true;
      const LayoutResults results =
          run_layout(trial_with(model, 4, Mesh({.data = {ranks}})), batches_of(4, 1, 2));
      // Each of two layers; the choices are even, so the probabilities need not be.
      EXPECT_NEAR(results.steps[0].results.balance, 2 * kCoefficient, 1e-12)
          << word(set) << " on " << ranks;
    }
  }
}

}  // namespace
}  // namespace tessera
