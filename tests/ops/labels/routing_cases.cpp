#include "ops/labels/cases.h"
#include "ops/moe/drop_over_capacity.h"
#include "ops/moe/routing.h"
#include "ops/moe/token_rows.h"

namespace tessera::testing {
namespace {

/// Four tokens with two choices each, which are eight routed rows.
const std::map<std::string, int64_t>& extents_of_routing() {
  static const std::map<std::string, int64_t> extents{{"n", 4}, {"k", 2}, {"r", 8}, {"c", 6},
                                                      {"f", 4}, {"b", 1}, {"l", 3}};
  return extents;
}

/// Choice i is routed row 3 i mod 8, which is the inverse of itself.
int64_t row_of_choice(int64_t choice) { return 3 * choice % 8; }

GivenInput token_of_row() {
  return given_values({"r"}, [](int64_t row) { return row_of_choice(row) / 2; });
}
GivenInput rows_of_choices() { return given_values({"n", "k"}, row_of_choice); }

TokenIndices declared_indices(Builder& builder, const LabelRanges& of) {
  const Value tokens = declared(builder, {of("r")}, DType::i32);
  return {tokens, declared(builder, {of("n"), of("k")}, DType::i32)};
}

void add_moves(std::vector<LabelCase>& cases) {
  const std::set<std::string> indexed{"n", "k", "r"};
  for (const bool gradient : {false, true}) {
    const auto gather = [=](Builder& builder, const LabelRanges& of) {
      const Value x = declared(builder, {of("n"), of("c")});
      gather_tokens(builder, x, declared_indices(builder, of));
      if (gradient) write_gradient(builder);
    };
    std::map<size_t, GivenInput> given{{1, token_of_row()}, {2, rows_of_choices()}};
    if (gradient) given = {{1, rows_of_choices()}};
    cases.push_back({gradient ? "gather_tokens_gradient" : "gather_tokens",
                     extents_of_routing(),
                     gather,
                     given,
                     {},
                     indexed});
    const auto reduce = [=](Builder& builder, const LabelRanges& of) {
      const Value rows = declared(builder, {of("r"), of("c")});
      const Value weights = declared(builder, {of("n"), of("k")});
      reduce_experts(builder, rows, weights, declared_indices(builder, of));
      if (gradient) write_gradient(builder);
    };
    cases.push_back({gradient ? "reduce_experts_gradient" : "reduce_experts",
                     extents_of_routing(),
                     reduce,
                     {{2, token_of_row()}, {3, rows_of_choices()}},
                     {},
                     indexed});
  }
}

}  // namespace

/// The exchanges of rows over several ranks have no labels that could be tried on one; their tests
/// are in moe_exchange_test.cpp.
std::vector<LabelCase> routing_label_cases() {
  std::vector<LabelCase> cases;
  const RoutingOptions three{.experts = 3, .local_experts = 3};
  const GivenInput chosen = given_values({"n", "k"}, [](int64_t i) { return (i + i / 6) % 3; });
  // Tokens of three blocks, of which the first expert may not take all that it is chosen for.
  const GivenInput most =
      given_values({"n", "k"}, [](int64_t i) { return i % 5 == 0 ? i % 3 : 0; });
  const RoutingOptions limited{.experts = 3, .local_experts = 3, .capacity_factor = 1.2};
  cases.push_back(
      {"token_counts",
       {{"n", 130}, {"k", 2}},
       [=](Builder& builder, const LabelRanges& of) {
         token_counts(builder, declared(builder, {of("n"), of("k")}, DType::i32), limited);
       },
       {{0, most}}});
  // Each expert's first row: the choices are 3, 3 and 2.
  const GivenInput offsets = given_values({"f"}, [](int64_t e) { return e < 3 ? 3 * e : 8; });
  cases.push_back(
      {"token_indices",
       extents_of_routing(),
       [=](Builder& builder, const LabelRanges& of) {
         const Value indices = declared(builder, {of("n"), of("k")}, DType::i32);
         const Value first_rows = declared(builder, {of("f")}, DType::i32);
         const Value block_offsets = declared(builder, {of("b"), of("l")}, DType::i32);
         token_indices(builder, indices, {{}, first_rows, block_offsets}, three);
       },
       {{0, chosen}, {1, offsets}, {2, given_values({"b", "l"}, [](int64_t) { return 0; })}},
       {},
       {"n", "k", "f", "b", "l"}});
  cases.push_back({"drop_over_capacity",
                   {{"n", 4}, {"k", 2}},
                   [=](Builder& builder, const LabelRanges& of) {
                     const Value indices = declared(builder, {of("n"), of("k")}, DType::i32);
                     drop_over_capacity(builder, indices, 3, 0.5, TokenSet::micro_batch);
                   },
                   {{0, chosen}}});
  add_moves(cases);
  return cases;
}

}  // namespace tessera::testing
