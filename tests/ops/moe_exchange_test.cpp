#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/moe/drop_over_capacity.h"
#include "ops/moe/exchange.h"
#include "ops/moe/routed_types.h"
#include "ops/moe/token_rows.h"
#include "ops/router/router.h"
#include "support/all_tokens.h"
#include "support/error_of.h"
#include "support/mesh_programs.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kOwnTokens = 7;
constexpr int64_t kChoices = 2;
constexpr int64_t kWidth = 3;

/// The experts that the tokens of a rank choose. Rank 1 chooses none, nobody chooses expert 0.
std::vector<int32_t> choices_of_rank(int rank, int64_t experts) {
  const CounterRandom random(3, "choices of ranks");
  std::vector<int32_t> choices;
  for (int64_t i = 0; i < kOwnTokens * kChoices; ++i) {
    const auto drawn =
        random.bits(static_cast<uint64_t>(rank * 1000 + i)) % static_cast<uint64_t>(experts + 1);
    const auto expert = static_cast<int32_t>(drawn);
    choices.push_back(rank == 1 || expert == 0 || expert == experts ? -1 : expert);
  }
  return choices;
}

/// A row says which rank and token it is of; small enough for bf16.
double row_number(int rank, int64_t token, int64_t column) {
  return static_cast<double>(rank * 16 + token * 2 + (column == 1 ? 1 : 0));
}

struct ExchangeCase {
  MeshSizes sizes;
  int64_t local_experts = 2;
  DType dtype = DType::f64;
};

/// Rows sent to their experts and back, on every rank.
class Exchanged {
 public:
  explicit Exchanged(const ExchangeCase& of)
      : case_(of),
        mesh_(of.sizes),
        run_(
            mesh_, [this](Builder& builder) { write(builder); },
            [this](int rank, const ValueInfo& value) { return given(rank, value); }) {}

  int64_t experts() const { return case_.local_experts * mesh_.size(mesh_.expert()); }
  const Mesh& mesh() const { return mesh_; }
  const MeshRun& run() const { return run_; }

  /// What arrives at a rank: its experts in order, for each the ranks that sent, for each its
  /// tokens in order.
  std::vector<std::pair<int, int64_t>> expected_rows(int rank) const {
    const int64_t first = case_.local_experts * mesh_.coordinate(rank, mesh_.expert());
    const Axis over[] = {mesh_.expert()};
    std::vector<std::pair<int, int64_t>> rows;
    for (int64_t expert = first; expert < first + case_.local_experts; ++expert) {
      for (const int source : mesh_.group(rank, over)) {
        const std::vector<int32_t> choices = choices_of_rank(source, experts());
        for (size_t i = 0; i < choices.size(); ++i) {
          if (choices[i] == expert) rows.emplace_back(source, static_cast<int64_t>(i) / kChoices);
        }
      }
    }
    return rows;
  }

 private:
  int64_t bound() const { return kOwnTokens * kChoices * mesh_.size(mesh_.expert()); }

  void write(Builder& builder) {
    const Distribution tokens = all_tokens(mesh_);
    const Value x = builder.input("x", {{kOwnTokens, kWidth}, case_.dtype, tokens});
    const Value chosen = builder.input("chosen", {{kOwnTokens, kChoices}, DType::i32, tokens});
    const Value indices = cross(builder, chosen, MeshView::expert);
    const RoutingOptions routing{.experts = experts(), .local_experts = experts(), .identity = 1};
    const TokenCounts counts = token_counts(builder, indices, routing);
    const TokenIndices token_rows = token_indices(builder, indices, counts, routing);
    const RowExchange exchange =
        exchange_counts(builder, counts.offsets,
                        {.axis = mesh_.expert(),
                         .local_experts = case_.local_experts,
                         .sent_rows = kOwnTokens * kChoices,
                         .bound = {.rows = bound(), .balanced = kOwnTokens, .key = "key"},
                         .sent_identity = 1,
                         .received_identity = 2});
    const Value sent = gather_tokens(builder, cross(builder, x, MeshView::expert), token_rows);
    const Value rows = exchange_rows(builder, sent, exchange);
    const Value back = return_rows(builder, rows, exchange);
    const Value back_gradient = builder.input("of_back", builder.spec(back));
    const Value x_gradient = differentiate(
        builder, std::vector{Seed{back, back_gradient, SeedKind::boundary}}, std::vector{x})[0];
    for (const auto& [value, name] :
         {std::pair(sent, "sent"), std::pair(rows, "rows"), std::pair(back, "back"),
          std::pair(x_gradient, "of_x"), std::pair(token_rows.output_indices, "rows of choices")}) {
      builder.name(value, name);
      builder.output(value);
    }
  }

  Tensor given(int rank, const ValueInfo& value) const {
    std::vector<double> numbers;
    if (value.name == "chosen") {
      const std::vector<int32_t> choices = choices_of_rank(rank, experts());
      numbers.assign(choices.begin(), choices.end());
    } else if (value.name == "x") {
      for (int64_t t = 0; t < kOwnTokens; ++t) {
        for (int64_t c = 0; c < kWidth; ++c) numbers.push_back(row_number(rank, t, c));
      }
    } else {
      numbers = small_numbers(value.spec.shape.elements(), fmt::format("of_back {}", rank));
    }
    return tensor_of(value.spec.shape, value.spec.dtype, numbers);
  }

  ExchangeCase case_;
  Mesh mesh_;
  MeshRun run_;
};

std::vector<ExchangeCase> exchange_cases() {
  return {{.sizes = {}},
          {.sizes = {.tensor = 2, .expert = 2}, .local_experts = 3},
          {.sizes = {.tensor = 3, .expert = 3}, .local_experts = 1},
          {.sizes = {.tensor = 2, .data = {2}, .expert = 2}, .dtype = DType::f32},
          {.sizes = {.context = 2, .data = {2}, .expert = 4}, .dtype = DType::bf16}};
}

TEST(ExchangeRows, BringsEveryRowToItsExpertInTheOrderOfRanksAndTokens) {
  for (const ExchangeCase& of : exchange_cases()) {
    const Exchanged exchanged(of);
    for (int rank = 0; rank < exchanged.mesh().ranks(); ++rank) {
      std::vector<double> rows = numbers_of(exchanged.run().value(rank, "rows"));
      std::vector<double> expected;
      for (const auto& [source, token] : exchanged.expected_rows(rank)) {
        for (int64_t c = 0; c < kWidth; ++c) expected.push_back(row_number(source, token, c));
      }
      EXPECT_LT(expected.size(), rows.size());
      rows.resize(expected.size());  // the others are not used
      EXPECT_EQ(rows, expected) << exchanged.mesh().text() << ", rank " << rank;
    }
  }
}

TEST(ExchangeRows, ReturnsWhatWasSent) {
  for (const ExchangeCase& of : exchange_cases()) {
    const Exchanged exchanged(of);
    for (int rank = 0; rank < exchanged.mesh().ranks(); ++rank) {
      const std::vector<double> rows_of_choices =
          numbers_of(exchanged.run().value(rank, "rows of choices"));
      const auto used = std::ranges::count_if(rows_of_choices, [](double row) { return row >= 0; });
      std::vector<double> sent = numbers_of(exchanged.run().value(rank, "sent"));
      std::vector<double> back = numbers_of(exchanged.run().value(rank, "back"));
      for (std::vector<double>* rows : {&sent, &back}) {
        rows->resize(static_cast<size_t>(used * kWidth));
      }
      EXPECT_EQ(back, sent);
    }
  }
}

TEST(ExchangeRows, GradientsGoTheOtherWay) {
  for (const ExchangeCase& of : exchange_cases()) {
    const Exchanged exchanged(of);
    for (int rank = 0; rank < exchanged.mesh().ranks(); ++rank) {
      const std::vector<double> rows_of_choices =
          numbers_of(exchanged.run().value(rank, "rows of choices"));
      const std::vector<double> back_gradient =
          small_numbers(kOwnTokens * kChoices * kWidth, fmt::format("of_back {}", rank));
      std::vector<double> expected(kOwnTokens * kWidth);
      for (size_t i = 0; i < rows_of_choices.size(); ++i) {
        if (rows_of_choices[i] < 0) continue;
        for (size_t c = 0; c < kWidth; ++c) {
          expected[i / kChoices * kWidth + c] +=
              back_gradient[static_cast<size_t>(rows_of_choices[i]) * kWidth + c];
        }
      }
      EXPECT_EQ(numbers_of(exchanged.run().value(rank, "of_x")), expected);
    }
  }
}

TEST(ExchangeRows, OnOneRankTheyAreTheSameMemory) {
  const Exchanged exchanged({});
  for (const Node& node : exchanged.run().program().nodes()) {
    if (node.operation->name() != "exchange_in_place") continue;
    EXPECT_TRUE(exchanged.run().program().info(node.outputs[0]).view);
  }
}

/// Four ranks that say how many rows they send to the first of four experts, and nothing else.
void exchange_numbers(int32_t rows, int64_t bound) {
  const Mesh mesh({.tensor = 4, .expert = 4});
  const MeshRun run(
      mesh,
      [&](Builder& builder) {
        const Distribution rows_of_tokens = Distribution(MeshView::expert)
                                                .with(mesh.expert(), rows_of_exchange(1))
                                                .with(mesh.expert_data()[0], rows_of_exchange(1));
        const Value offsets = builder.input("offsets", {{5}, DType::i32, rows_of_tokens});
        const RowExchange exchange =
            exchange_counts(builder, offsets,
                            {.axis = mesh.expert(),
                             .local_experts = 1,
                             .sent_rows = rows,
                             .bound = {.rows = bound, .balanced = 100, .key = "key"},
                             .sent_identity = 1,
                             .received_identity = 2});
        builder.output(exchange.offsets);
      },
      [&](int, const ValueInfo&) {
        const double sent = rows;
        return tensor_of({5}, DType::i32, std::vector{0.0, sent, sent, sent, sent});
      });
}

TEST(ExchangeRows, AreCountedBeforeTheirNumbersAreNarrowed) {
  // 4 * 2^30 rows would be none in 32 bits.
  EXPECT_THAT(error_of([] { exchange_numbers(1 << 30, 400); }),
              AllOf(HasSubstr("rank 0 got 4294967296 rows"), HasSubstr("400 are reserved")));
  EXPECT_NO_THROW(exchange_numbers(100, 400));
  EXPECT_THROW(exchange_numbers(100, int64_t{1} << 31), InternalError);
}

TEST(DropOverCapacity, OfTheTokensOfEachRankCountsThemAlone) {
  const Mesh mesh({.tensor = 2});
  // Capacity ceil(1 · 3 · 1 / 2) = 2 of each expert and rank.
  const std::vector<std::vector<double>> chosen{{1, 1, 1}, {0, 1, 0}};
  const std::vector<std::vector<double>> kept{{1, 1, -1}, {0, 1, 0}};
  const MeshRun run(
      mesh,
      [&](Builder& builder) {
        const Value indices = builder.input("chosen", {{3, 1}, DType::i32, all_tokens(mesh)});
        const Value own = drop_over_capacity(builder, indices, 2, 1.0, TokenSet::rank);
        builder.name(own, "kept");
        builder.output(own);
        EXPECT_EQ(builder.spec(own), builder.spec(indices));
      },
      [&](int rank, const ValueInfo& value) {
        return tensor_of(value.spec.shape, DType::i32, chosen[static_cast<size_t>(rank)]);
      });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(numbers_of(run.value(rank, "kept")), kept[static_cast<size_t>(rank)]);
  }
}

TEST(RouterTopKOfRanks, ForcedUniformRoutingCountsTheTokensOfAllRanks) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const MeshRun run(
      mesh,
      [&](Builder& builder) {
        const Value probabilities =
            builder.input("probabilities", {{3, 5}, DType::f64, all_tokens(mesh)});
        const Value chosen =
            router_top_k(builder, probabilities, {.k = 2, .forced_uniform = true}).indices;
        builder.name(chosen, "chosen");
        builder.output(chosen);
      },
      [&](int, const ValueInfo& value) { return drawn(value.spec, "probabilities"); });
  std::vector<double> expected;
  for (int i = 0; i < 12 * 2; ++i) expected.push_back(i % 5);
  EXPECT_EQ(numbers_of(run.whole("chosen")), expected);
}

}  // namespace
}  // namespace tessera::testing
