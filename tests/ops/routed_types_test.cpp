// Programs that route rows wrongly, and are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/elementwise/elementwise.h"
#include "ops/moe/exchange.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/token_rows.h"
#include "support/all_tokens.h"
#include "support/refusal_of.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The tokens and the rows of a layer's routing, of which a test uses some wrongly.
struct RoutedProgram {
  explicit RoutedProgram(const MeshSizes& sizes = {}) : program(Mesh(sizes)) {
    const Mesh& mesh = program.mesh();
    const Distribution tokens = all_tokens(mesh);
    const Value chosen = builder.input("chosen", {{4, 2}, DType::i32, tokens});
    x = cross(builder, builder.input("x", {{4, 6}, DType::f64, tokens}), MeshView::expert);
    weights =
        cross(builder, builder.input("weights", {{4, 2}, DType::f64, tokens}), MeshView::expert);
    indices = cross(builder, chosen, MeshView::expert);
  }

  /// The routing of these tokens, whose rows have this identity.
  std::pair<TokenCounts, TokenIndices> route(int identity) {
    const RoutingOptions routing{.experts = 4, .local_experts = 4, .identity = identity};
    const TokenCounts counts = token_counts(builder, indices, routing);
    return {counts, token_indices(builder, indices, counts, routing)};
  }

  RowExchange exchange(const TokenCounts& counts, int sent, int received) {
    const Axis axis = program.mesh().expert();
    return exchange_counts(builder, counts.offsets,
                           {.axis = axis,
                            .local_experts = 4 / program.mesh().size(axis),
                            .sent_rows = 8,
                            .bound = {.rows = 8, .balanced = 8, .key = "key"},
                            .sent_identity = sent,
                            .received_identity = received});
  }

  Program program;
  Builder builder{program};
  Value x, weights, indices;
};

const std::vector<MeshSizes>& meshes_of_mistakes() {
  static const std::vector<MeshSizes> meshes{
      {}, {.tensor = 2, .expert = 2}, {.tensor = 2}, {.tensor = 2, .data = {2}, .expert = 2}};
  return meshes;
}

TEST(RoutedTypes, RowsAreNotCombinedByThePlanOfAnotherExchange) {
  for (const MeshSizes& sizes : meshes_of_mistakes()) {
    RoutedProgram routed(sizes);
    const auto [counts, token_rows] = routed.route(1);
    const auto [other_counts, other_token_rows] = routed.route(2);
    const Value rows = gather_tokens(routed.builder, routed.x, token_rows);
    EXPECT_NO_THROW(reduce_experts(routed.builder, rows, routed.weights, token_rows));
    EXPECT_THAT(refusal_of([&, other = other_token_rows] {
                  reduce_experts(routed.builder, rows, routed.weights, other);
                }),
                AllOf(HasSubstr("reduce_experts: on expert"), HasSubstr("gather_tokens"),
                      HasSubstr("expected the same rows"), HasSubstr("exchange 1"),
                      HasSubstr("exchange 2")));
  }
}

TEST(RoutedTypes, RowsAreNotReturnedByThePlanOfAnotherExchange) {
  for (const MeshSizes& sizes : meshes_of_mistakes()) {
    RoutedProgram routed(sizes);
    const auto [counts, token_rows] = routed.route(1);
    const auto [other_counts, other_token_rows] = routed.route(3);
    const RowExchange exchange = routed.exchange(counts, 1, 2);
    const RowExchange other = routed.exchange(other_counts, 3, 4);
    const Value sent = gather_tokens(routed.builder, routed.x, token_rows);
    EXPECT_THAT(refusal_of([&] { exchange_rows(routed.builder, sent, other); }),
                HasSubstr("exchange 1"));
    const Value rows = exchange_rows(routed.builder, sent, exchange);
    EXPECT_THAT(
        refusal_of([&] { return_rows(routed.builder, rows, other); }),
        AllOf(HasSubstr("on expert_data"), HasSubstr("exchange 2"), HasSubstr("exchange 4")));
    EXPECT_NO_THROW(return_rows(routed.builder, rows, exchange));
  }
}

/// A rank's rows of experts are filled up to a bound, so the ranks' rows one after the other are
/// not the whole. One rank refuses what several do.
TEST(RoutedTypes, RowsOfExpertsAreNotJoined) {
  std::vector<MeshSizes> meshes = meshes_of_mistakes();
  meshes.push_back({.tensor = 4, .expert = 4});
  for (const MeshSizes& sizes : meshes) {
    RoutedProgram routed(sizes);
    Builder& builder = routed.builder;
    const Mesh& mesh = routed.program.mesh();
    const Axis e = mesh.expert(), x = mesh.expert_data()[0];
    const auto [counts, token_rows] = routed.route(1);
    const RowExchange exchange = routed.exchange(counts, 1, 2);
    const Value rows =
        exchange_rows(builder, gather_tokens(builder, routed.x, token_rows), exchange);
    const Distribution experts =
        Distribution(MeshView::expert).with(e, sharded(0)).with(x, replicated());
    const Value weight = builder.input("weight", {{4 / mesh.size(e), 6, 6}, DType::f64, experts});
    const Value results =
        grouped_linear(builder, rows, std::vector{weight}, exchange.offsets).front();
    const Value halves = scale(builder, results, 0.5);
    for (const Value value : {rows, results, halves}) {
      for (const Axis axis : {e, x}) {
        const TypeOnAxis& before = builder.spec(value).distribution.on(axis);
        for (const TypeOnAxis& to : {replicated(), invariant(), partial(), sharded(1)}) {
          if (before.placement == Placement::varying && to != replicated()) continue;
          EXPECT_THAT(
              refusal_of([&] { convert(builder, value, axis, before.placement, to); }),
              ::testing::AnyOf(AllOf(HasSubstr(fmt::format("on {}", mesh.name(axis))),
                                     HasSubstr("the number of its rows is known only at run time"),
                                     HasSubstr(routed.program.info(value).name)),
                               HasSubstr("join that first")))
              << mesh.text() << ": " << before.text() << " -> " << to.text();
        }
      }
    }
    // What came back has the rows that were sent, as many as there are choices.
    const Value back = return_rows(builder, results, exchange);
    EXPECT_FALSE(routed.program.info(back).has_run_time_rows);
    EXPECT_NO_THROW(convert(builder, back, x, Placement::varying, replicated()));
    // Weights' gradients are of experts and not of rows.
    const Value gradient =
        grouped_linear_weight_gradient(builder, rows, results, exchange.offsets, weight);
    EXPECT_FALSE(routed.program.info(gradient).has_run_time_rows);
  }
}

/// The experts of a rank take their rows of tokens that were gathered. A second conversion in one
/// go, of another axis, is looked at as well.
TEST(RoutedTypes, RowsThatAreTakenOfGatheredTokensAreNotJoined) {
  for (const MeshSizes& sizes : meshes_of_mistakes()) {
    RoutedProgram routed(sizes);
    Builder& builder = routed.builder;
    const Mesh& mesh = routed.program.mesh();
    const Axis e = mesh.expert(), x = mesh.expert_data()[0];
    const auto gathered = [&](Value value) {
      for (const Axis axis : {e, x}) {
        value = convert(builder, value, axis, Placement::varying, replicated());
      }
      return value;
    };
    const RoutingOptions routing{
        .experts = 4, .local_experts = 4 / mesh.size(e), .expert_axis = e, .identity = 1};
    const Value indices = gathered(routed.indices);
    const TokenCounts counts = token_counts(builder, indices, routing);
    const TokenIndices token_rows = token_indices(builder, indices, counts, routing);
    const Value rows = gather_tokens(builder, gathered(routed.x), token_rows);
    EXPECT_THAT(refusal_of([&] { convert(builder, rows, e, Placement::sharded, replicated()); }),
                AllOf(HasSubstr("sharded -> replicated on expert"), HasSubstr("gather_tokens"),
                      HasSubstr("known only at run time")));
    const std::vector<Conversion> both{{x, Placement::replicated, partial()},
                                       {e, Placement::sharded, replicated()}};
    EXPECT_THAT(refusal_of([&] { convert_all(builder, rows, both); }),
                HasSubstr("sharded -> replicated on expert"));
  }
}

TEST(RoutedTypes, RowsDoNotMeetTheOffsetsOfAnotherExchange) {
  for (const MeshSizes& sizes : meshes_of_mistakes()) {
    RoutedProgram routed(sizes);
    const auto [counts, token_rows] = routed.route(1);
    const auto [other_counts, other_token_rows] = routed.route(3);
    const RowExchange exchange = routed.exchange(counts, 1, 2);
    const RowExchange other = routed.exchange(other_counts, 3, 4);
    Builder& builder = routed.builder;
    const Mesh& mesh = routed.program.mesh();
    const Value rows =
        exchange_rows(builder, gather_tokens(builder, routed.x, token_rows), exchange);
    const Distribution experts = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
    const Value stored =
        builder.parameter("weight", {{4 / mesh.size(mesh.expert()), 5, 6}, DType::f64, experts});
    const Value weight = use(builder, stored, std::vector{mesh.expert_data()[0]});
    const auto apply = [&](Value used_weight, Value offsets) {
      grouped_linear(builder, rows, std::vector{used_weight}, offsets);
    };
    EXPECT_NO_THROW(apply(weight, exchange.offsets));
    EXPECT_THAT(refusal_of([&] { apply(weight, other.offsets); }),
                AllOf(HasSubstr("grouped_linear"), HasSubstr("expert_data"),
                      HasSubstr("expected the same pieces")));
    // A weight that is not retyped where ranks have rows of their own: its gradient would never be
    // summed over expert_data.
    EXPECT_THAT(refusal_of([&] { apply(stored, exchange.offsets); }),
                AllOf(HasSubstr("'weight' is invariant on expert_data"), HasSubstr("replicated")));
  }
}

TEST(RoutedTypes, SumsOverExpertsOfOtherRanksMustBeTaken) {
  for (const MeshSizes& sizes : meshes_of_mistakes()) {
    RoutedProgram routed(sizes);
    Builder& builder = routed.builder;
    const Axis axis = routed.program.mesh().expert();
    const auto gathered = [&](Value value) {
      return convert(builder, value, axis, Placement::varying, replicated());
    };
    const RoutingOptions routing{.experts = 4,
                                 .local_experts = 4 / routed.program.mesh().size(axis),
                                 .expert_axis = axis,
                                 .identity = 1};
    const Value indices = gathered(routed.indices);
    const TokenCounts counts = token_counts(builder, indices, routing);
    const TokenIndices token_rows = token_indices(builder, indices, counts, routing);
    // Tokens that were not gathered are not those of the choices.
    EXPECT_THAT(refusal_of([&] { gather_tokens(builder, routed.x, token_rows); }),
                AllOf(HasSubstr("gather_tokens: on expert"), HasSubstr("expected")));
    // Nor are those of which each rank is said to have the one copy: their gradient is a sum.
    Spec one = builder.spec(gathered(routed.x));
    one.distribution = one.distribution.with(axis, invariant());
    const Value invariant_x = builder.input("invariant x", one);
    EXPECT_THAT(refusal_of([&] { gather_tokens(builder, invariant_x, token_rows); }),
                AllOf(HasSubstr("'invariant x' is invariant"), HasSubstr("expected replicated")));
    const Value rows = gather_tokens(builder, gathered(routed.x), token_rows);
    EXPECT_THAT(refusal_of([&] { reduce_experts(builder, rows, routed.weights, token_rows); }),
                HasSubstr("reduce_experts: on expert"));
    const Value sum = reduce_experts(builder, rows, gathered(routed.weights), token_rows);
    EXPECT_EQ(builder.spec(sum).distribution.on(axis), partial());
    EXPECT_THAT(refusal_of([&] { cross(builder, sum, MeshView::dense); }),
                HasSubstr("cannot cross to the dense view"));
  }
}

}  // namespace
}  // namespace tessera::testing
