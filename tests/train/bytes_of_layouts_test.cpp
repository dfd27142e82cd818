#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/collective/convert.h"
#include "support/mesh_programs.h"
#include "train/counted_step.h"

// What ranks get from each other in a real step, as the transports count it where bytes are copied
// or summed, beside the formulas of the papers, which are written out here. All are bytes of one
// rank, on average. A ring sends as many as it receives.

namespace tessera::testing {
namespace {

constexpr double kSequences = 8;
constexpr double kContext = 16;
constexpr double kTokens = kSequences * kContext;
/// Parameters begin at multiples of 64 elements. So nothing is padded, and no padding is summed.
constexpr double kHidden = 64;
constexpr double kActivation = 2;  // bytes of an element, of bf16
constexpr double kLayers = 2;
constexpr double kVocabulary = 64;
constexpr double kInner = 64;  // channels of a dense feed-forward block
constexpr double kExperts = 8;
constexpr double kExpertSize = 16;
constexpr double kChosen = 2;  // experts of a token

/// What of some bytes comes from others: each of n ranks has an equal part of them.
double of_others(double n) { return (n - 1) / n; }
/// What a rank gets for a sum that all ranks take: a reduce-scatter and an all-gather.
double of_sum(double n) { return 2 * of_others(n); }

/// MegaScale-MoE, equation 1, in bytes: 2 b s h (n-1) / n elements, for the attention of a layer
/// with tensor parallelism. They are an all-gather and a reduce-scatter.
double equation_one(double n) { return 2 * kTokens * kHidden * (n - 1) / n * kActivation; }
/// Equation 3: experts by all-to-all, each token going to k of them and back.
double equation_three(double n) {
  return 2 * kChosen / n * kTokens * kHidden * (n - 1) / n * kActivation;
}
/// Equation 4: the feed-forward block with tensor parallelism, and experts by all-gather.
double equation_four(double n) { return 2 * kTokens * kHidden * (n - 1) / n * kActivation; }

ModelConfig dense() {
  ModelConfig config;
  config.layers = static_cast<int64_t>(kLayers);
  config.hidden_size = static_cast<int64_t>(kHidden);
  config.heads = 8;
  config.kv_heads = 8;
  config.feed_forward_size = static_cast<int64_t>(kInner);
  config.vocabulary_size = static_cast<int64_t>(kVocabulary);
  return config;
}

ModelConfig mixture() {
  ModelConfig config = dense();
  config.feed_forward_size = 0;
  config.experts = static_cast<int64_t>(kExperts);
  config.experts_per_token = static_cast<int64_t>(kChosen);
  config.expert_size = static_cast<int64_t>(kExpertSize);
  config.balance_coefficient = 0.05;
  config.router_z_coefficient = 0.01;
  return config;
}

/// A trial of the model in bf16. Each token of a mixture chooses what `choose` says of its number.
template <typename Choose>
LayoutTrial trial(const ModelConfig& config, const MeshSizes& sizes, ExpertExchange exchange,
                  Choose&& choose) {
  LayoutTrial result{.model = config,
                     .size = {.sequences = static_cast<int64_t>(kSequences),
                              .context = static_cast<int64_t>(kContext)},
                     .compute = DType::bf16,
                     .mesh = Mesh(sizes),
                     .experts = {.exchange = exchange}};
  if (!config.mixture()) return result;
  std::vector<int32_t> chosen;
  for (int t = 0; t < kTokens; ++t) {
    for (const int expert : choose(t)) chosen.push_back(expert % static_cast<int>(kExperts));
  }
  const auto layers = static_cast<size_t>(config.layers);
  result.pinned = {{std::vector<std::vector<int32_t>>(layers, chosen)}};
  return result;
}

/// Of any run of 4 tokens or a multiple, all experts get as many.
std::vector<int> balanced(int token) { return {2 * token, 2 * token + 1}; }
std::vector<int> skewed(int token) { return {token * token, token * token + 1 + token % 7}; }

LayoutTrial trial(const ModelConfig& config, const MeshSizes& sizes,
                  ExpertExchange exchange = ExpertExchange::automatic) {
  return trial(config, sizes, exchange, balanced);
}

/// The nodes of a pass in one layer's block, or outside the layers if it is -1.
auto in(int layer, Block block, Phase phase) {
  return [=](const CountedNode& counted) {
    return counted.node->layer == layer && counted.node->block == block &&
           counted.node->phase == phase;
  };
}

/// The nodes whose operations name exactly these axes.
auto over(std::vector<Axis> axes) {
  return [axes = std::move(axes)](const CountedNode& counted) {
    return std::ranges::equal(axes_of(counted), axes);
  };
}

bool is_passes(const CountedNode& counted) { return counted.node->phase != Phase::update; }

/// Whether a node takes the sum of a main gradient.
bool of_gradient(const CountedNode& counted) {
  const std::vector<Value>& inputs = counted.node->inputs;
  return !inputs.empty() &&
         counted.program->info(counted.program->base(inputs[0])).kind == ValueKind::main_gradient;
}

TEST(BytesOfLayouts, CountedByTheTransportAreThoseThatEveryOperationSays) {
  const auto uneven = [](ModelConfig config) {
    config.vocabulary_size = 67;
    config.feed_forward_size = config.mixture() ? 0 : 36;
    config.kv_heads = 2;
    return config;
  };
  ModelConfig normed = dense();
  normed.query_key_norm = QueryKeyNorm::projection;
  for (const LayoutTrial& tried :
       {trial(uneven(dense()), {.tensor = 4, .data = {2}}),
        trial(normed, {.tensor = 2, .context = 2, .data = {2}}),
        trial(uneven(dense()), {.context = 4, .data = {2}}),
        trial(mixture(), {.tensor = 2, .data = {2}, .expert = 2}, ExpertExchange::all_gather),
        trial(mixture(), {.tensor = 2, .context = 2, .data = {2}, .expert = 4},
              ExpertExchange::all_gather),
        trial(uneven(mixture()), {.tensor = 2, .context = 2, .data = {2}, .expert = 4},
              ExpertExchange::all_to_all),
        trial(mixture(), {.data = {2, 2}, .expert = 2}, ExpertExchange::all_to_all),
        trial(mixture(), {.data = {2, 2, 2}, .expert = 2}),
        trial(mixture(), {.tensor = 2, .data = {2, 2}, .expert = 2})}) {
    const CountedStep step(tried);
    int met = 0;
    for (const CountedNode& node : step.nodes()) {
      const double received = static_cast<double>(node.received_by_all());
      EXPECT_NEAR(received, node.cost, 1e-9 * node.cost)
          << step.text(node) << " on " << tried.mesh.text();
      met += received > 0 ? 1 : 0;
    }
    EXPECT_GT(met, 12);
  }
}

TEST(BytesOfLayouts, TensorParallelismSendsWhatEquationOneSays) {
  for (const int n : {2, 4, 8}) {
    const CountedStep step(trial(dense(), {.tensor = n}));
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      for (int layer = 0; layer < kLayers; ++layer) {
        EXPECT_DOUBLE_EQ(step.received(in(layer, Block::attention, phase)), equation_one(n)) << n;
        EXPECT_DOUBLE_EQ(step.received(in(layer, Block::feed_forward, phase)), equation_four(n))
            << n;
      }
      // The embedding's sum and the gather before the head, or the duals.
      EXPECT_DOUBLE_EQ(step.received(in(-1, Block::embedding, phase)), equation_one(n) / 2) << n;
    }
    // The head also agrees on the largest logit, the sum of exponentials and the target's logit.
    const double agreed = of_sum(n) * 3 * kTokens * 4;
    EXPECT_DOUBLE_EQ(step.received(in(-1, Block::head, Phase::forward)),
                     equation_one(n) / 2 + agreed)
        << n;
    EXPECT_DOUBLE_EQ(step.received(in(-1, Block::head, Phase::backward)), equation_one(n) / 2) << n;
    // That is all of both passes.
    EXPECT_DOUBLE_EQ(
        step.received(is_passes),
        2 * (kLayers * (equation_one(n) + equation_four(n)) + equation_one(n)) + agreed)
        << n;
  }
}

/// MegaScale-MoE, equation 2, 2 b s h (n-1) / n · (2 + 2/m) / n elements, is of Ulysses' attention:
/// queries, keys, values and outputs pass between positions and heads by all-to-all, where m query
/// heads share a key head. No model here is written with it, but the conversions are there. Each
/// rank has b s / n rows, of which it gets (n-1) / n from others: for h + 2 h / m + h channels that
/// is half of the equation as it is printed. Equations 1 and 3 count each byte that a rank receives
/// once, as this does.
TEST(BytesOfLayouts, AllToAllsOfUlyssesSendHalfOfEquationTwo) {
  for (const int n : {2, 4, 8}) {
    for (const int m : {1, 2, 4}) {
      const Mesh mesh({.context = n});
      const Axis axis = mesh.context();
      const auto own = static_cast<int64_t>(kTokens) / n;
      const auto write = [&](Builder& builder) {
        const auto pass = [&](const std::string& name, double channels, int from, int to) {
          Shape shape{own, static_cast<int64_t>(channels)};
          if (from == 1) shape = {static_cast<int64_t>(kTokens), shape[1] / n};
          const Value x =
              builder.input(name, {shape, DType::bf16, Distribution().with(axis, sharded(from))});
          builder.output(convert(builder, x, axis, Placement::sharded, sharded(to)));
        };
        pass("query", kHidden, 0, 1);
        pass("key", kHidden / m, 0, 1);
        pass("value", kHidden / m, 0, 1);
        pass("output", kHidden, 1, 0);
      };
      const auto give = [](int, const ValueInfo& value) {
        Tensor zeros(value.spec.shape, value.spec.dtype);
        zeros.fill_zero();
        return zeros;
      };
      const MeshRun run(mesh, write, give);
      const double printed = equation_one(n) * (2 + 2.0 / m) / n;
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_DOUBLE_EQ(static_cast<double>(run.received_bytes(rank, std::vector{axis})),
                         printed / 2)
            << n << " ranks, " << m << " query heads a key head";
      }
    }
  }
}

/// The ranks gather K and V before attention, and scatter the sums of their gradients (Llama 3,
/// "The Llama 3 Herd of Models", section 3.3.2; "Scaling Llama 3 Training", section 4). A rank has
/// b s / n rows of g heads of d channels of each. So it gets 2 b s g d (n-1) / n elements of a
/// layer in each pass, however many query heads there are.
TEST(BytesOfLayouts, ContextParallelismSendsKeysAndValues) {
  ModelConfig config = dense();
  config.kv_heads = 2;
  const double of_heads = 2 * kHidden / 8;  // g d
  for (const int n : {2, 4, 8}) {
    const CountedStep step(trial(config, {.context = n}));
    const double keys_and_values = 2 * kTokens * of_heads * of_others(n) * kActivation;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        EXPECT_DOUBLE_EQ(step.received(in(layer, Block::attention, phase)), keys_and_values) << n;
      }
    }
    // The rest is the positions of all tokens, once a micro-batch, in 4 bytes.
    EXPECT_DOUBLE_EQ(step.received(is_passes),
                     2 * kLayers * keys_and_values + kTokens * of_others(n) * 4)
        << n;
  }
}

constexpr double kNorms = (2 * kLayers + 1) * kHidden;
constexpr double kMatrices =
    kLayers * (4 * kHidden * kHidden + 3 * kHidden * kInner) + 2 * kVocabulary * kHidden;

/// 2 (n-1) / n of the gradients, in f32, once a step: nothing for each micro-batch.
TEST(BytesOfLayouts, DataParallelismSendsTheGradientsOnceAStep) {
  for (const int n : {2, 4, 8}) {
    const CountedStep step(trial(dense(), {.data = {n}}));
    EXPECT_EQ(step.received(is_passes), 0) << n;
    EXPECT_DOUBLE_EQ(step.received(of_gradient), of_sum(n) * 4 * (kNorms + kMatrices)) << n;
    // The rest is the loss, in f64.
    const auto all = [](const CountedNode&) { return true; };
    EXPECT_DOUBLE_EQ(step.received(all) - step.received(of_gradient), of_sum(n) * 8) << n;
  }
}

/// Ranks that share a layer have their own pieces of its matrices, which they sum over the data
/// axis alone. The norms are whole on all, and are summed over all ranks at once.
TEST(BytesOfLayouts, GradientsAreSummedOnceOverAllRanksThatUseThem) {
  const Mesh mesh({.tensor = 2, .data = {4}});
  const CountedStep step(trial(dense(), {.tensor = 2, .data = {4}}));
  const auto gradients = [&](std::vector<Axis> axes) {
    return step.received([of = over(std::move(axes))](const CountedNode& counted) {
      return of_gradient(counted) && of(counted);
    });
  };
  const double whole = gradients({mesh.tensor(), mesh.data()[0]});
  const double split = gradients({mesh.data()[0]});
  EXPECT_DOUBLE_EQ(whole, of_sum(8) * 4 * kNorms);
  EXPECT_DOUBLE_EQ(split, of_sum(4) * 4 * kMatrices / 2);
  EXPECT_DOUBLE_EQ(step.received(of_gradient), whole + split);
}

/// Experts that 2 of 8 ranks share are on 4 ranks each.
TEST(BytesOfLayouts, GradientsOfExpertsAreSummedOverTheRanksThatHaveThem) {
  const Mesh mesh({.data = {8}, .expert = 2});
  const CountedStep step(trial(mixture(), {.data = {8}, .expert = 2}));
  const double of_experts = kLayers * kExperts * 3 * kHidden * kExpertSize;
  const double others =
      kNorms + kLayers * kHidden * (4 * kHidden + kExperts) + 2 * kVocabulary * kHidden;
  const auto experts = [of = over({mesh.expert_data()[0]})](const CountedNode& counted) {
    return of_gradient(counted) && of(counted);
  };
  EXPECT_DOUBLE_EQ(step.received(experts), of_sum(4) * 4 * of_experts / 2);
  EXPECT_DOUBLE_EQ(step.received(of_gradient), step.received(experts) + of_sum(8) * 4 * others);
}

/// MegaScale-MoE, appendix A.1, for a whole step: n = 4 ranks of each of d = 2 nodes send, between
/// nodes, 2P/n (d-1)/d of what all have alike. Of experts that two ranks share, two ranks of a node
/// have the same. Sums in one step would send n times as much between nodes. bf16 halves it all.
TEST(BytesOfLayouts, GradientsAreSummedByLevelAsAppendixA1Says) {
  const double of_experts = kLayers * kExperts * 3 * kHidden * kExpertSize;
  const double others =
      kNorms + kLayers * kHidden * (4 * kHidden + kExperts) + 2 * kVocabulary * kHidden;
  for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16}) {
    LayoutTrial tried = trial(mixture(), {.data = {4, 2}, .expert = 2});
    tried.shard.unit_options.gradients_wire = {wire};
    const CountedStep step(tried);
    const Mesh& mesh = tried.mesh;
    double within = 0, between = 0;
    for (const CountedNode& counted : step.nodes()) {
      if (!of_gradient(counted)) continue;
      within +=
          counted.received_over({mesh.data()[0]}) + counted.received_over({mesh.expert_data()[0]});
      between +=
          counted.received_over({mesh.data()[1]}) + counted.received_over({mesh.expert_data()[1]});
    }
    const double element = wire == WireFormat::bf16 ? 2 : 4;
    EXPECT_DOUBLE_EQ(within / 8, element * (of_sum(4) * others + of_sum(2) * of_experts / 2));
    EXPECT_DOUBLE_EQ(between / 8, element * of_sum(2) * (others / 4 + of_experts / 2 / 2));
    EXPECT_DOUBLE_EQ(step.received(of_gradient), (within + between) / 8);
  }
}

/// The bytes of a layer's experts beside those of an equation. The counts of tokens are i32.
double of_counts(int n) { return of_sum(n) * kExperts * 4; }

/// How many tokens chose each expert is summed in one call. Ranks that gathered the tokens of all
/// that share their experts have counted these alike.
TEST(BytesOfLayouts, CountsOfTokensAreSummedAtOnce) {
  for (const ExpertExchange exchange : {ExpertExchange::all_to_all, ExpertExchange::all_gather}) {
    const CountedStep step(trial(mixture(), {.data = {8}, .expert = 2}, exchange));
    int sums = 0;
    const double bytes = step.received([&](const CountedNode& counted) {
      return in(0, Block::experts, Phase::forward)(counted) &&
             counted.node->operation->name() == "all_reduce";
    });
    for (const CountedNode& counted : step.nodes()) {
      sums += counted.node->layer == 0 && counted.node->operation->name() == "all_reduce" ? 1 : 0;
    }
    EXPECT_EQ(sums, 1) << word(exchange);
    EXPECT_EQ(bytes, of_counts(exchange == ExpertExchange::all_to_all ? 8 : 4)) << word(exchange);
  }
}

TEST(BytesOfLayouts, ExpertsByAllToAllSendWhatEquationThreeSays) {
  for (const int n : {2, 4, 8}) {
    for (const bool of_tensor : {true, false}) {
      const MeshSizes sizes =
          of_tensor ? MeshSizes{.tensor = n, .expert = n} : MeshSizes{.data = {n}, .expert = n};
      const CountedStep step(trial(mixture(), sizes, ExpertExchange::all_to_all));
      for (int layer = 0; layer < kLayers; ++layer) {
        // Before rows go, their numbers do.
        EXPECT_DOUBLE_EQ(step.received(in(layer, Block::experts, Phase::forward)),
                         equation_three(n) + of_others(n) * kExperts * 4 + of_counts(n))
            << n;
        EXPECT_DOUBLE_EQ(step.received(in(layer, Block::experts, Phase::backward)),
                         equation_three(n))
            << n;
      }
    }
  }
}

TEST(BytesOfLayouts, ExpertsByAllGatherSendWhatEquationFourSays) {
  for (const int n : {2, 4, 8}) {
    const CountedStep step(
        trial(mixture(), {.tensor = n, .expert = n}, ExpertExchange::all_gather));
    // Each token's experts and their weights, in 4 bytes.
    const double chosen = kTokens * kChosen * of_others(n) * 4;
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_DOUBLE_EQ(step.received(in(layer, Block::experts, Phase::forward)),
                       equation_four(n) + 2 * chosen)
          << n;
      EXPECT_DOUBLE_EQ(step.received(in(layer, Block::experts, Phase::backward)),
                       equation_four(n) + chosen)
          << n;
    }
  }
}

/// However tokens choose, a rank gets the rows that others' tokens have with its experts, and back
/// those that its tokens have with others' experts.
TEST(BytesOfLayouts, ExpertsByAllToAllSendTheRowsThatTokensChose) {
  constexpr int n = 4;
  const LayoutTrial tried =
      trial(mixture(), {.tensor = n, .expert = n}, ExpertExchange::all_to_all, skewed);
  const CountedStep step(tried);
  const std::vector<int32_t>& chosen = tried.pinned[0][0][0];
  std::vector<double> arrive(n), come_back(n);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto position = static_cast<int>(i / 2) % static_cast<int>(kContext);
    const auto owner = static_cast<size_t>(position / (static_cast<int>(kContext) / n));
    const auto expert = static_cast<size_t>(chosen[i] / (static_cast<int>(kExperts) / n));
    if (owner == expert) continue;
    arrive[expert] += kHidden * kActivation;
    come_back[owner] += kHidden * kActivation;
  }
  EXPECT_NE(arrive[0], arrive[1]) << "the choices are balanced";
  for (int rank = 0; rank < n; ++rank) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const auto rows = [&](std::string_view operation) {
        return step.received_by(rank, [&](const CountedNode& counted) {
          return counted.node->operation->name() == operation && counted.node->phase == phase;
        });
      };
      const auto at = static_cast<size_t>(rank);
      EXPECT_EQ(rows("exchange_rows"), kLayers * arrive[at]) << rank;
      EXPECT_EQ(rows("return_rows"), kLayers * come_back[at]) << rank;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
