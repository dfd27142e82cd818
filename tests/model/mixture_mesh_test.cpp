#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "model/mixture_program.h"
#include "program/program.h"
#include "support/error_of.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 48;
constexpr int kExperts = 8;

using Choices = std::vector<std::vector<int>>;

/// Two experts of each token, as a function of its number gives them.
template <typename Function>
Choices choices_of(Function&& choose) {
  Choices choices;
  for (int t = 0; t < kTokens; ++t) choices.push_back(choose(t));
  return choices;
}

/// A random number below `below`.
int drawn_number(int token, int at, int below) {
  const CounterRandom random(5, "choices");
  return static_cast<int>(
      random.bits(static_cast<uint64_t>(token) * 4 + static_cast<uint64_t>(at)) %
      static_cast<uint64_t>(below));
}

std::vector<int> two(int first, int distance) {
  return {first % kExperts, (first + distance) % kExperts};
}

/// Eight ways in which tokens choose, by their names.
std::map<std::string, Choices> workloads() {
  const auto skewed = [](int t) {
    const int wide = drawn_number(t, 0, 64);
    return two(static_cast<int>(std::sqrt(wide)), 1 + drawn_number(t, 1, kExperts - 1));
  };
  return {{"balanced", choices_of([](int t) { return two(t, 3); })},
          {"one hot expert", choices_of([](int t) { return two(2, 1 + t % (kExperts - 1)); })},
          {"one hot rank", choices_of([](int t) { return t % 2 == 0 ? two(4, 1) : two(5, 7); })},
          {"a rank that gets nothing", choices_of([](int t) { return two(t % 3, 3); })},
          {"rotating", choices_of([](int t) { return two(t / 6, 1); })},
          {"in bursts", choices_of([](int t) { return t % 12 < 9 ? two(7, 6) : two(t, 2); })},
          {"random skew", choices_of(skewed)},
          {"adversarial", choices_of([](int t) { return two((t / 12 * 2 + 2) % 8, 1); })}};
}

std::vector<double> counted(const Choices& choices) {
  std::vector<double> counts(kExperts);
  for (const std::vector<int>& token : choices) {
    for (const int expert : token) ++counts[static_cast<size_t>(expert)];
  }
  return counts;
}

/// The numbers of the exchanges of a program's rows.
std::set<int> exchanges_of(const Program& program) {
  std::set<int> numbers;
  for (const ValueInfo& value : program.values()) {
    const Distribution& lies = value.spec.distribution;
    for (const Axis axis : program.mesh().axes_of(lies.view())) {
      const Pieces& pieces = lies.on(axis).pieces;
      if (pieces.kind == PieceKind::exchange) numbers.insert(pieces.identity);
    }
  }
  return numbers;
}

/// The rows of two mixtures do not meet, be they of one layer or of none.
TEST(MixturesOfOneProgram, HaveExchangesOfTheirOwn) {
  for (const auto exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
    for (const int layer : {-1, 0}) {
      std::set<std::set<int>> of_ranks;
      for (int rank = 0; rank < 4; ++rank) {
        Program program(Mesh({.tensor = 2, .data = {2}, .expert = 2}), rank);
        Builder builder(program);
        ModelConfig config;
        config.hidden_size = 9;
        config.experts = 8;
        config.experts_per_token = 2;
        config.expert_size = 5;
        ModelWriter writer{.builder = builder,
                           .config = config,
                           .compute = DType::f64,
                           .layout = {},
                           .unit = "unit"};
        const Mesh& mesh = program.mesh();
        const Distribution tokens =
            Distribution().with(mesh.data()[0], sharded(0)).with(mesh.context(), sharded(0));
        const Value x =
            builder.input("x", {{4, 9}, DType::f64, tokens.with(mesh.tensor(), sharded(0))});
        const auto scope = builder.layer_scope("layer", layer);
        std::set<int> first;
        for (const char* name : {"first", "second"}) {
          const auto inner = builder.scope(name, Block::other);
          mixture_of_experts(writer, x, {.exchange = exchange});
          if (first.empty()) first = exchanges_of(program);
        }
        const std::set<int> both = exchanges_of(program);
        EXPECT_EQ(both.size(), 2 * first.size());
        EXPECT_GE(*both.begin(), 0);
        of_ranks.insert(both);
      }
      EXPECT_EQ(of_ranks.size(), 1U) << "ranks that number exchanges differently";
    }
  }
}

class MixtureOnMeshes : public ::testing::TestWithParam<ExpertExchange> {};
INSTANTIATE_TEST_SUITE_P(, MixtureOnMeshes,
                         ::testing::Values(ExpertExchange::all_gather, ExpertExchange::all_to_all),
                         [](const auto& info) { return std::string(word(info.param)); });

TEST_P(MixtureOnMeshes, EveryTokenAndEveryGradientIsAsOnOneRank) {
  for (const auto& [name, choices] : workloads()) {
    const MixtureRun one({.choices = choices, .typed = false});
    EXPECT_EQ(one.counts(), counted(choices)) << name;
    for (const NamedMesh& mesh : mixture_meshes()) {
      const std::string what = name + " on " + mesh.name;
      const MixtureRun run(
          {.mesh = mesh.sizes, .layout = {.exchange = GetParam()}, .choices = choices});
      EXPECT_EQ(run.counts(), counted(choices)) << what;
      expect_near(run.results(), one.results(), what);
    }
  }
}

TEST_P(MixtureOnMeshes, TokensBeyondTheCapacityOfTheMicroBatchAreThoseOfOneRank) {
  for (const char* name : {"one hot expert", "random skew"}) {
    MixtureSetting setting{.choices = workloads().at(name), .capacity_factor = 1.2, .typed = false};
    const MixtureRun one(setting);
    setting.capacity_factor = 0;
    EXPECT_NE(MixtureRun(setting).results(), one.results());
    for (const NamedMesh& mesh : mixture_meshes()) {
      const MixtureRun run({.mesh = mesh.sizes,
                            .layout = {.exchange = GetParam()},
                            .choices = setting.choices,
                            .capacity_factor = 1.2});
      EXPECT_EQ(run.counts(), counted(setting.choices));
      expect_near(run.results(), one.results(), std::string(name) + " on " + mesh.name);
    }
  }
}

TEST_P(MixtureOnMeshes, RecomputedExpertsHaveTheSameBits) {
  MixtureSetting setting{.mesh = {.tensor = 2, .data = {2}, .expert = 2},
                         .layout = {.exchange = GetParam()},
                         .choices = workloads().at("random skew")};
  const MixtureRun kept(setting);
  setting.recomputes = true;
  const MixtureRun recomputed(setting);
  const auto nodes = [](const MixtureRun& run) { return run.run().program().nodes().size(); };
  EXPECT_GT(nodes(recomputed), nodes(kept));
  EXPECT_EQ(recomputed.results(), kept.results());
}

TEST_P(MixtureOnMeshes, AllRanksTogetherCountTheOperationsOfOne) {
  const Choices choices = workloads().at("balanced");
  const auto flops = [](const MixtureRun& run) {
    double flops = 0;
    for (const Node& node : run.run().program().nodes()) {
      flops += node_cost(run.run().program(), node).flops;
    }
    return flops * run.mesh().ranks();
  };
  const double one = flops(MixtureRun({.choices = choices, .typed = false}));
  for (const NamedMesh& mesh : mixture_meshes()) {
    const MixtureRun run(
        {.mesh = mesh.sizes, .layout = {.exchange = GetParam()}, .choices = choices});
    EXPECT_DOUBLE_EQ(flops(run), one) << mesh.name;
  }
}

TEST_P(MixtureOnMeshes, ExpertsThatDoNotDivideAreRefused) {
  const MixtureSetting setting{.mesh = {.tensor = 4, .expert = 4},
                               .layout = {.exchange = GetParam()},
                               .choices = workloads().at("balanced"),
                               .experts = 9};
  EXPECT_THAT(error_of([&] { MixtureRun{setting}; }),
              AllOf(HasSubstr("model.experts = 9"), HasSubstr("4 parts")));
}

TEST_P(MixtureOnMeshes, OneRankHasTheSameBitsWithTypes) {
  const Choices choices = workloads().at("random skew");
  const MixtureRun typed({.layout = {.exchange = GetParam()}, .choices = choices});
  const MixtureRun plain({.choices = choices, .typed = false});
  EXPECT_EQ(typed.results(), plain.results());
  size_t runs = 0;
  for (const Node& node : typed.run().program().nodes()) {
    runs += node.operation->view(0).has_value() ? 0U : 1U;
  }
  size_t plain_runs = 0;
  for (const Node& node : plain.run().program().nodes()) {
    plain_runs += node.operation->view(0).has_value() ? 0U : 1U;
  }
  EXPECT_EQ(runs, plain_runs);
}

TEST_P(MixtureOnMeshes, MoreRowsThanAreReservedAreAnErrorThatSaysWhatToDo) {
  const MixtureSetting setting{.mesh = {.tensor = 2, .expert = 2},
                               .layout = {.exchange = GetParam(), .rows_bound = 1.5},
                               .choices = workloads().at("one hot rank")};
  // All 96 rows go to the second rank, which reserved 72; the other gets none.
  EXPECT_THAT(
      error_of([&] { MixtureRun{setting}; }),
      AllOf(HasSubstr("layers.0"), HasSubstr("rank 1 got 96 rows"), HasSubstr("2.00 times the 48"),
            HasSubstr("72 are reserved"), HasSubstr("parallel.expert_rows_bound")));
  MixtureSetting enough = setting;
  enough.layout.rows_bound = 2;
  EXPECT_NO_THROW(MixtureRun{enough});
}

/// The bytes on the wire of a pass, as nodes count them; of hidden activations alone, or of all.
double wire_bytes(const Program& program, Phase phase, int64_t width) {
  double bytes = 0;
  for (const Node& node : program.nodes()) {
    const std::vector<Spec> outputs = program.specs(node.outputs);
    if (node.phase != phase || outputs.empty()) continue;
    const Shape& shape = outputs[0].shape;
    if (width > 0 && (shape.rank() != 2 || shape[1] != width)) continue;
    for (const WireBytes& wire : node.operation->cost(program.specs(node.inputs), outputs).wire) {
      bytes += wire.bytes;
    }
  }
  return bytes;
}

TEST_P(MixtureOnMeshes, BytesOnTheWireAreThoseOfTheEquations) {
  // Each rank's tokens choose all experts equally often.
  Choices choices;
  for (int t = 0; t < 64; ++t) choices.push_back({2 * t % kExperts, (2 * t + 1) % kExperts});
  for (const int ranks : {2, 4, 8}) {
    const MixtureRun run({.mesh = {.tensor = ranks, .expert = ranks},
                          .layout = {.exchange = GetParam()},
                          .choices = choices});
    // MegaScale-MoE, equations 3 and 4, of the n ranks' b·s tokens; in each pass.
    const double n = ranks, k = 2, hidden = kExperts + 1;
    const double all = 64 * hidden * 8;
    const double equation = GetParam() == ExpertExchange::all_to_all ? 2 * k / n * all * (n - 1) / n
                                                                     : 2 * all * (n - 1) / n;
    const Program& program = run.run().program();
    const auto width = static_cast<int64_t>(hidden);
    EXPECT_DOUBLE_EQ(wire_bytes(program, Phase::forward, width), equation) << ranks;
    EXPECT_DOUBLE_EQ(wire_bytes(program, Phase::backward, width), equation) << ranks;
    double sent = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sent += static_cast<double>(run.run().received_bytes(rank, std::vector{run.mesh().expert()}));
    }
    EXPECT_DOUBLE_EQ(
        sent / n, wire_bytes(program, Phase::forward, 0) + wire_bytes(program, Phase::backward, 0))
        << ranks;
  }
}

TEST(MixtureExchange, TheOneThatSendsLessIsChosen) {
  const auto sends_rows = [](int ranks, ExpertExchange exchange) {
    const MixtureRun run({.mesh = {.tensor = ranks, .expert = ranks},
                          .layout = {.exchange = exchange},
                          .choices = workloads().at("balanced")});
    return std::ranges::any_of(run.run().program().nodes(), [](const Node& node) {
      return node.operation->name() == "exchange_rows";
    });
  };
  // A token has two experts.
  EXPECT_FALSE(sends_rows(2, ExpertExchange::automatic));
  EXPECT_TRUE(sends_rows(4, ExpertExchange::automatic));
  EXPECT_TRUE(sends_rows(2, ExpertExchange::all_to_all));
  EXPECT_FALSE(sends_rows(4, ExpertExchange::all_gather));
}

TEST_P(MixtureOnMeshes, RowsThatAreNotKnownBeforeTheRunAreMarked) {
  const MixtureRun run({.mesh = {.tensor = 2, .expert = 2},
                        .layout = {.exchange = GetParam(), .rows_bound = 1.25},
                        .choices = workloads().at("balanced")});
  const Program& program = run.run().program();
  int bounded = 0;
  for (const ValueInfo& value : program.values()) {
    if (value.kind != ValueKind::computed || value.spec.shape.rank() != 2) continue;
    if (value.spec.shape[0] != 60) {  // a quarter more than the 48 of an even load
      EXPECT_FALSE(value.rows) << value.name;
      continue;
    }
    ++bounded;
    ASSERT_TRUE(value.rows) << value.name;
    EXPECT_EQ(value.rows->expected, 48);
    EXPECT_EQ(value.rows->key, "parallel.expert_rows_bound");
  }
  EXPECT_GE(bounded, 8);  // gate, up, activation, down and their gradients
}

}  // namespace
}  // namespace tessera::testing
