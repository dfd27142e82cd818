#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "ops/activation/activation.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/skip_class.h"
#include "ops/moe/token_rows.h"
#include "ops/router/router.h"
#include "support/run_program.h"

namespace tessera {
namespace {

/// What a router may choose besides experts: nothing, or a class that skips them all and gives the
/// token nothing or its input.
enum class SkipClass { none, zero, input };

/// A whole block of experts: softmax, choice, five stages.
struct BlockCase {
  int64_t tokens = 7;
  int64_t hidden = 3;
  int64_t expert_size = 2;
  int64_t experts = 4;
  TopKOptions choice = {.k = 2};
  std::optional<double> capacity_factor = {};
  SkipClass skip = SkipClass::none;

  /// What the router chooses among. The class that skips is the last.
  int64_t classes() const { return experts + (skip == SkipClass::none ? 0 : 1); }

  /// x, logits, gate, up, down.
  std::vector<Shape> shapes() const {
    return {{tokens, hidden},
            {tokens, classes()},
            {experts, expert_size, hidden},
            {experts, expert_size, hidden},
            {experts, hidden, expert_size}};
  }

  Value build(Builder& builder, std::span<const Value> in) const {
    const Value probabilities = router_softmax(builder, in[1]);
    const RouterSelection chosen = router_top_k(builder, probabilities, choice);
    const RoutingOptions options{
        .experts = experts, .local_experts = experts, .capacity_factor = capacity_factor};
    const Value output = stages(builder, in[0], chosen, in.subspan(2), options);
    return skip == SkipClass::input ? add_skipped(builder, output, in[0], chosen, experts) : output;
  }

  static Value stages(Builder& builder, Value x, const RouterSelection& chosen,
                      std::span<const Value> weights, const RoutingOptions& options) {
    const TokenCounts counts = token_counts(builder, chosen.indices, options);
    const TokenIndices indices = token_indices(builder, chosen.indices, counts, options);
    const Value rows = gather_tokens(builder, x, indices);
    const auto hidden = grouped_linear(builder, rows, weights.first(2), counts.offsets);
    const Value product = gated_activation(builder, hidden[0], hidden[1], Activation::silu);
    const Value output = grouped_linear(builder, product, weights.subspan(2, 1), counts.offsets)[0];
    return reduce_experts(builder, output, chosen.weights, indices);
  }
};

using Numbers = std::vector<double>;

double& at(Numbers& matrix, int64_t row, int64_t columns, int64_t column) {
  return matrix[static_cast<size_t>(row * columns + column)];
}
double at(const Numbers& matrix, int64_t row, int64_t columns, int64_t column) {
  return matrix[static_cast<size_t>(row * columns + column)];
}

/// The classes that a token chooses with their weights, by the definition.
std::vector<std::pair<int64_t, double>> naive_choice(const BlockCase& block, const Numbers& logits,
                                                     int64_t token) {
  Numbers p;
  double sum = 0;
  for (int64_t e = 0; e < block.classes(); ++e) {
    p.push_back(std::exp(at(logits, token, block.classes(), e)));
    sum += p.back();
  }
  for (double& probability : p) probability /= sum;
  std::vector<int64_t> order(static_cast<size_t>(block.classes()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](int64_t e) { return p[static_cast<size_t>(e)]; });
  std::vector<std::pair<int64_t, double>> chosen;
  double chosen_sum = 0;
  for (int64_t j = 0; j < block.choice.k; ++j) {
    const int64_t expert = block.choice.forced_uniform
                               ? (token * block.choice.k + j) % block.experts
                               : order[static_cast<size_t>(j)];
    chosen.emplace_back(expert, p[static_cast<size_t>(expert)]);
    chosen_sum += chosen.back().second;
  }
  for (auto& [expert, weight] : chosen) weight /= block.choice.renormalise ? chosen_sum : 1;
  return chosen;
}

/// down · (silu(gate x) ⊙ (up x)) of one expert for one token.
Numbers naive_expert(const BlockCase& block, const std::vector<Numbers>& in, int64_t token,
                     int64_t expert) {
  Numbers result(static_cast<size_t>(block.hidden), 0.0);
  for (int64_t i = 0; i < block.expert_size; ++i) {
    double gate = 0;
    double up = 0;
    for (int64_t h = 0; h < block.hidden; ++h) {
      gate += at(in[2], expert * block.expert_size + i, block.hidden, h) *
              at(in[0], token, block.hidden, h);
      up += at(in[3], expert * block.expert_size + i, block.hidden, h) *
            at(in[0], token, block.hidden, h);
    }
    const double product = gate / (1 + std::exp(-gate)) * up;
    for (int64_t h = 0; h < block.hidden; ++h) {
      result[static_cast<size_t>(h)] +=
          at(in[4], expert * block.hidden + h, block.expert_size, i) * product;
    }
  }
  return result;
}

/// The block by a dense loop over tokens and experts.
Numbers naive_block(const BlockCase& block, const std::vector<Numbers>& in) {
  Numbers result(static_cast<size_t>(block.tokens * block.hidden), 0.0);
  std::vector<int64_t> taken(static_cast<size_t>(block.experts), 0);
  const int64_t capacity =
      block.capacity_factor
          ? expert_capacity(*block.capacity_factor, block.tokens, block.choice.k, block.experts)
          : block.tokens;
  for (int64_t t = 0; t < block.tokens; ++t) {
    for (const auto& [expert, weight] : naive_choice(block, in[1], t)) {
      if (expert == block.experts) {  // skipped: no expert has a place less
        for (int64_t h = 0; block.skip == SkipClass::input && h < block.hidden; ++h) {
          at(result, t, block.hidden, h) += weight * at(in[0], t, block.hidden, h);
        }
        continue;
      }
      if (taken[static_cast<size_t>(expert)]++ >= capacity) continue;
      const Numbers output = naive_expert(block, in, t, expert);
      for (int64_t h = 0; h < block.hidden; ++h) {
        at(result, t, block.hidden, h) += weight * output[static_cast<size_t>(h)];
      }
    }
  }
  return result;
}

std::vector<Numbers> random_numbers(const BlockCase& block) {
  std::vector<Numbers> in;
  for (const Shape& shape : block.shapes()) {
    const std::string name = "input" + std::to_string(in.size());
    in.push_back(testing::as_doubles(testing::random_tensor(shape, DType::f64, name)));
  }
  return in;
}

/// The block's result and gradients, from the program, against the naive loop and its central
/// differences, on the same random numbers. Returns those of the program.
testing::RunResult compare_with_naive(const BlockCase& block) {
  std::vector<testing::RunInput> inputs;
  for (const Shape& shape : block.shapes()) inputs.push_back({shape});
  testing::RunResult actual = testing::run_program(
      [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {block.build(builder, in)};
      },
      inputs, {.dtype = DType::f64});

  std::vector<Numbers> in = random_numbers(block);
  const Numbers seed = testing::as_doubles(
      testing::random_tensor({block.tokens, block.hidden}, DType::f64, "seed0"));
  testing::expect_close(actual.outputs[0], naive_block(block, in), {0, 1e-12}, "result");
  const auto objective = [&] {
    const Numbers result = naive_block(block, in);
    return std::inner_product(result.begin(), result.end(), seed.begin(), 0.0);
  };
  for (size_t i = 0; i < in.size(); ++i) {
    Numbers expected;
    for (double& entry : in[i]) {
      const double before = entry;
      entry = before + 1e-5;
      const double above = objective();
      entry = before - 1e-5;
      expected.push_back((above - objective()) / 2e-5);
      entry = before;
    }
    testing::expect_close(actual.gradients[i], expected, {0, 1e-6},
                          "gradient of input " + std::to_string(i));
  }
  return actual;
}

TEST(ExpertBlock, AgreesWithADenseLoopOverExperts) { compare_with_naive({}); }

TEST(ExpertBlock, OneToken) { compare_with_naive({.tokens = 1}); }

TEST(ExpertBlock, OneExpert) { compare_with_naive({.experts = 1, .choice = {.k = 1}}); }

TEST(ExpertBlock, EveryExpertForEveryToken) { compare_with_naive({.choice = {.k = 4}}); }

TEST(ExpertBlock, MostExpertsWithoutTokens) {
  compare_with_naive({.tokens = 2, .experts = 9, .choice = {.k = 1}});
}

TEST(ExpertBlock, RenormalisedWeights) {
  compare_with_naive({.choice = {.k = 2, .renormalise = true}});
}

TEST(ExpertBlock, ForcedUniformRouting) {
  compare_with_naive({.choice = {.k = 3, .renormalise = true, .forced_uniform = true}});
}

TEST(ExpertBlock, DroppedTokensCountNothingAndGetNoGradient) {
  compare_with_naive({.tokens = 12, .capacity_factor = 0.5});
}

/// The rows of a matrix that are not zeros.
std::vector<int64_t> rows_with_numbers(const Numbers& matrix, int64_t columns) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < std::ssize(matrix) / columns; ++row) {
    const auto begin = matrix.begin() + row * columns;
    if (std::any_of(begin, begin + columns, [](double entry) { return entry != 0; })) {
      rows.push_back(row);
    }
  }
  return rows;
}

/// By class, the tokens that choose it first.
std::vector<std::vector<int64_t>> tokens_of_classes(const BlockCase& block) {
  const Numbers logits = random_numbers(block)[1];
  std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(block.classes()));
  for (int64_t t = 0; t < block.tokens; ++t) {
    tokens[static_cast<size_t>(naive_choice(block, logits, t)[0].first)].push_back(t);
  }
  return tokens;
}

TEST(SkippingBlock, TokensOfTheClassThatSkipsGetNothingOrTheirInput) {
  BlockCase block{.tokens = 16, .experts = 3, .choice = {.k = 1}, .skip = SkipClass::zero};
  const std::vector<std::vector<int64_t>> tokens = tokens_of_classes(block);
  for (const auto& of_class : tokens) EXPECT_FALSE(of_class.empty());
  std::vector<int64_t> visiting;
  for (int64_t t = 0; t < block.tokens; ++t) {
    if (!std::ranges::binary_search(tokens.back(), t)) visiting.push_back(t);
  }
  const testing::RunResult nothing = compare_with_naive(block);
  EXPECT_EQ(rows_with_numbers(nothing.outputs[0], block.hidden), visiting);
  // Neither the token nor the router learns from a token that gets nothing.
  EXPECT_EQ(rows_with_numbers(nothing.gradients[0], block.hidden), visiting);
  EXPECT_EQ(rows_with_numbers(nothing.gradients[1], block.classes()), visiting);

  block.skip = SkipClass::input;
  const testing::RunResult input = compare_with_naive(block);
  EXPECT_EQ(std::ssize(rows_with_numbers(input.outputs[0], block.hidden)), block.tokens);
  // The experts do not see the difference.
  for (const size_t weights : {2, 3, 4}) {
    EXPECT_EQ(input.gradients[weights], nothing.gradients[weights]);
  }
}

TEST(SkippingBlock, OneOfTwoChoicesMaySkip) {
  for (const SkipClass skip : {SkipClass::zero, SkipClass::input}) {
    for (const bool renormalise : {false, true}) {
      compare_with_naive({.tokens = 12,
                          .experts = 3,
                          .choice = {.k = 2, .renormalise = renormalise},
                          .skip = skip});
    }
  }
}

/// The class that skips takes no place of an expert, and no expert's capacity limits it.
TEST(SkippingBlock, TheCapacityIsOfTheTokensThatVisitExperts) {
  for (const SkipClass skip : {SkipClass::zero, SkipClass::input}) {
    const BlockCase block{
        .tokens = 24, .experts = 3, .choice = {.k = 1}, .capacity_factor = 0.625, .skip = skip};
    const int64_t capacity = expert_capacity(0.625, block.tokens, 1, block.experts);
    std::vector<std::vector<int64_t>> tokens = tokens_of_classes(block);
    std::vector<int64_t> reached;
    bool drops = false;
    for (int64_t c = 0; c < block.classes(); ++c) {
      auto& of_class = tokens[static_cast<size_t>(c)];
      const bool skips = c == block.experts;
      if (skips) {
        EXPECT_GT(std::ssize(of_class), capacity);
      }
      if (skips && skip == SkipClass::zero) continue;
      if (!skips && std::ssize(of_class) > capacity) {
        drops = true;
        of_class.resize(static_cast<size_t>(capacity));
      }
      reached.insert(reached.end(), of_class.begin(), of_class.end());
    }
    EXPECT_TRUE(drops);
    std::ranges::sort(reached);
    const testing::RunResult result = compare_with_naive(block);
    EXPECT_EQ(rows_with_numbers(result.outputs[0], block.hidden), reached);
  }
}

/// Experts that no token visits add nothing.
TEST(SkippingBlock, AllTokensMaySkip) {
  for (const SkipClass skip : {SkipClass::zero, SkipClass::input}) {
    const BlockCase block{.tokens = 1, .experts = 1, .choice = {.k = 1}, .skip = skip};
    ASSERT_EQ(tokens_of_classes(block)[1].size(), 1U);
    const testing::RunResult result = compare_with_naive(block);
    for (const size_t weights : {2, 3, 4}) {
      EXPECT_EQ(rows_with_numbers(result.gradients[weights], 1), std::vector<int64_t>());
    }
  }
}

/// A rank's part of a block: what it makes of all tokens by the experts that it holds.
testing::RunResult run_part(const BlockCase& block, int64_t first, int64_t local) {
  testing::RunOptions options{.dtype = DType::f64, .kernels = Kernels::plain};
  std::vector<testing::RunInput> inputs;
  for (const Shape& shape : block.shapes()) {
    const std::string name = "input" + std::to_string(inputs.size());
    inputs.push_back({shape});
    if (inputs.size() <= 2) continue;  // x and the logits, which every rank has
    inputs.back().shape = shape.with_dim(0, local);
    options.fixed.emplace(
        name, testing::random_tensor(shape, DType::f64, name).slice(first, first + local));
  }
  return testing::run_program(
      [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const RouterSelection chosen =
            router_top_k(builder, router_softmax(builder, in[1]), block.choice);
        return {BlockCase::stages(builder, in[0], chosen, in.subspan(2),
                                  {.experts = block.experts,
                                   .first_expert = first,
                                   .local_experts = local,
                                   .capacity_factor = block.capacity_factor})};
      },
      inputs, options);
}

void add_to(Numbers& sum, const Numbers& addend) {
  sum.resize(addend.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
}

/// Ranks of so many experts each, which all get the gradient of the sum of their results. The sums
/// over the ranks are the whole's result and gradients of x and of the logits; each expert's
/// weights get their gradient on the one rank that holds them.
void compare_ranks_with_whole(const BlockCase& block, const std::vector<int64_t>& experts) {
  const testing::RunResult whole = run_part(block, 0, block.experts);
  testing::RunResult sum{.outputs = {{}}, .gradients = std::vector<Numbers>(5)};
  int64_t first = 0;
  for (const int64_t local : experts) {
    const testing::RunResult part = run_part(block, first, local);
    add_to(sum.outputs[0], part.outputs[0]);
    for (const size_t shared : {0, 1}) add_to(sum.gradients[shared], part.gradients[shared]);
    for (const size_t own : {2, 3, 4}) {
      sum.gradients[own].insert(sum.gradients[own].end(), part.gradients[own].begin(),
                                part.gradients[own].end());
    }
    first += local;
  }
  ASSERT_EQ(first, block.experts);
  testing::expect_close(sum, whole, {0, 1e-12});
  for (const Numbers& gradient : whole.gradients) {
    EXPECT_GT(std::ranges::count_if(gradient, [](double entry) { return entry != 0; }), 0);
  }
}

TEST(ExpertBlock, TheRanksPartsAddUpToTheWholeForwardAndBackward) {
  const BlockCase block{.tokens = 9, .experts = 6, .choice = {.k = 3}};
  compare_with_naive(block);  // what the parts add up to is right
  compare_ranks_with_whole(block, {2, 4});
  compare_ranks_with_whole(block, {1, 2, 3});
}

TEST(ExpertBlock, TheRanksPartsOfRenormalisedWeightsAddUpToTheWhole) {
  compare_ranks_with_whole({.tokens = 9, .experts = 6, .choice = {.k = 3, .renormalise = true}},
                           {3, 1, 2});
}

TEST(ExpertBlock, TheRanksPartsAddUpToTheWholeWhereTokensAreDropped) {
  compare_ranks_with_whole({.tokens = 12, .experts = 6, .choice = {.k = 2}, .capacity_factor = 0.5},
                           {2, 4});
}

TEST(ExpertBlock, ARankWhoseExpertsGetNoTokensAddsNothing) {
  // Forced routing of 3 tokens sends them to the first 3 of 9 experts.
  const BlockCase block{.tokens = 3, .experts = 9, .choice = {.k = 1, .forced_uniform = true}};
  compare_ranks_with_whole(block, {3, 6});
  const testing::RunResult idle = run_part(block, 3, 6);
  for (const auto* group : {&idle.outputs, &idle.gradients}) {
    for (const Numbers& numbers : *group) EXPECT_EQ(numbers, Numbers(numbers.size(), 0.0));
  }
}

}  // namespace
}  // namespace tessera
