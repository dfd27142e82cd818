#include "ops/labels/cases.h"
#include "ops/router/balance_counts.h"
#include "ops/router/losses.h"
#include "ops/router/router.h"

namespace tessera::testing {
namespace {

const std::map<std::string, int64_t>& extents_of_routers() {
  static const std::map<std::string, int64_t> extents{{"n", 6}, {"E", 4}, {"k", 2}, {"u", 1}};
  return extents;
}

Value declared_matrix(Builder& builder, const LabelRanges& of) {
  return declared(builder, {of("n"), of("E")});
}

void add_choices(std::vector<LabelCase>& cases, const TopKOptions& options) {
  const auto write = [=](Builder& builder, const LabelRanges& of) {
    const Value probabilities = declared_matrix(builder, of);
    TopKOptions own = options;
    own.k = of("k");
    router_top_k(builder, probabilities, own);
  };
  cases.push_back({"router_top_k", extents_of_routers(), write, {}, {0}});
  const auto write_biased = [=](Builder& builder, const LabelRanges& of) {
    const Value probabilities = declared_matrix(builder, of);
    TopKOptions own = options;
    own.k = of("k");
    router_top_k(builder, probabilities, own, {}, declared(builder, {of("E")}));
  };
  if (!options.forced_uniform) {
    cases.push_back({"router_top_k", extents_of_routers(), write_biased, {}, {0}});
  }
  // Two neighbouring experts of each token.
  const GivenInput chosen = given_values({"n", "k"}, [](int64_t i) { return (i + i / 8) % 4; });
  const auto write_pinned = [=](Builder& builder, const LabelRanges& of) {
    const Value probabilities = declared_matrix(builder, of);
    TopKOptions own = options;
    own.k = of("k");
    router_top_k(builder, probabilities, own, declared(builder, {of("n"), of("k")}, DType::i32));
  };
  cases.push_back({"router_top_k", extents_of_routers(), write_pinned, {{1, chosen}}, {0}});
  cases.push_back({"router_top_k_gradient",
                   extents_of_routers(),
                   [=](Builder& builder, const LabelRanges& of) {
                     write(builder, of);
                     write_gradient(builder);
                   },
                   {{1, chosen}},
                   {0},
                   {"E"}});
}

/// The load-balance loss of some layers, from sums of probabilities, and the gradients.
void add_balance(std::vector<LabelCase>& cases, size_t layers) {
  const auto write = [=](Builder& builder, const LabelRanges& of) {
    std::vector<Value> probabilities, counts;
    for (size_t i = 0; i < layers; ++i) probabilities.push_back(declared_matrix(builder, of));
    for (size_t i = 0; i < layers; ++i) {
      counts.push_back(declared(builder, {of("E")}, DType::i32));
    }
    load_balance_loss(builder, probabilities, counts, 0.3, 2,
                      layers == 1 ? BalanceForm::per_layer : BalanceForm::pooled);
  };
  std::map<size_t, GivenInput> given;
  for (size_t i = 1; i <= layers; ++i) {
    given[i] = given_values({"E"}, [](int64_t e) { return 2 * e + 1; });
  }
  const std::map<std::string, int64_t> extents{{"E", 4}, {"n", 6}, {"u", 1}};
  cases.push_back({"load_balance_loss", extents, write, given});
  cases.push_back({"load_balance_gradient", extents,
                   [=](Builder& builder, const LabelRanges& of) {
                     write(builder, of);
                     write_gradient(builder);
                   },
                   given});
  for (const bool gradient : {false, true}) {
    cases.push_back({gradient ? "probability_sums_gradient" : "probability_sums", extents,
                     [=](Builder& builder, const LabelRanges& of) {
                       std::vector<Value> probabilities;
                       for (size_t i = 0; i < layers; ++i) {
                         probabilities.push_back(declared_matrix(builder, of));
                       }
                       const Value sums = probability_sums(builder, probabilities);
                       if (!gradient) return;
                       const Node node = builder.program().nodes().back();
                       const Value sums_gradient = declared(builder, builder.spec(sums).shape);
                       node.operation->gradient(builder, node, std::vector{sums_gradient});
                     }});
  }
}

/// Sums that begin with those of earlier layers, for one set of tokens or several.
void add_earlier_layers(std::vector<LabelCase>& cases, size_t layers) {
  const std::map<std::string, int64_t> extents{{"s", 2}, {"n", 6}, {"E", 4}};
  for (const bool of_sets : {false, true}) {
    const auto sums_shape = [=](const LabelRanges& of) {
      return of_sets ? Shape{of("s"), of("E")} : Shape{of("E")};
    };
    cases.push_back({"probability_sums", extents, [=](Builder& builder, const LabelRanges& of) {
                       std::vector<Value> probabilities;
                       for (size_t i = 0; i < layers; ++i) {
                         const int64_t tokens = of_sets ? of("s") * of("n") : of("n");
                         probabilities.push_back(declared(builder, {tokens, of("E")}));
                       }
                       const auto sets = of_sets ? std::optional(of("s")) : std::nullopt;
                       probability_sums(builder, probabilities, sets,
                                        declared(builder, sums_shape(of)));
                     }});
    cases.push_back({"sum_of_counts", extents, [=](Builder& builder, const LabelRanges& of) {
                       std::vector<Value> counts;
                       for (size_t i = 0; i < layers; ++i) {
                         counts.push_back(declared(builder, sums_shape(of)));
                       }
                       sum_of_counts(builder, counts);
                     }});
  }
}

/// The same where a rank has some sets of tokens, each with its own sums and counts.
void add_balance_of_sets(std::vector<LabelCase>& cases, size_t layers) {
  const std::map<std::string, int64_t> extents{{"s", 2}, {"n", 3}, {"E", 4}, {"k", 2}, {"u", 1}};
  const auto probabilities = [=](Builder& builder, const LabelRanges& of) {
    std::vector<Value> values;
    for (size_t i = 0; i < layers; ++i) {
      values.push_back(declared(builder, {of("s") * of("n"), of("E")}));
    }
    return values;
  };
  const auto sums = [=](Builder& builder, const LabelRanges& of) {
    return probability_sums(builder, probabilities(builder, of), of("s"));
  };
  cases.push_back({"probability_sums", extents, sums});
  cases.push_back(
      {"probability_sums_gradient", extents, [=](Builder& builder, const LabelRanges& of) {
         const Value value = sums(builder, of);
         const Node node = builder.program().nodes().back();
         const Value sums_gradient = declared(builder, builder.spec(value).shape);
         node.operation->gradient(builder, node, std::vector{sums_gradient});
       }});
  const auto loss = [=](Builder& builder, const LabelRanges& of) {
    std::vector<Value> counts;
    for (size_t i = 0; i < layers; ++i) {
      counts.push_back(declared(builder, {of("s"), of("E")}, DType::i32));
    }
    load_balance_loss(builder, probabilities(builder, of), counts, 0.3, 2,
                      layers == 1 ? BalanceForm::per_layer : BalanceForm::pooled);
  };
  std::map<size_t, GivenInput> given;
  for (size_t i = 1; i <= layers; ++i) {
    given[i] = given_values({"s", "E"}, [](int64_t e) { return 2 * e + 1; });
  }
  cases.push_back({"load_balance_loss", extents, loss, given});
  cases.push_back({"load_balance_gradient", extents,
                   [=](Builder& builder, const LabelRanges& of) {
                     loss(builder, of);
                     write_gradient(builder);
                   },
                   given});
}

void add_balance_counts(std::vector<LabelCase>& cases) {
  cases.push_back(
      {"set_counts",
       {{"s", 2}, {"n", 3}, {"k", 2}},
       [](Builder& builder, const LabelRanges& of) {
         const Value indices = declared(builder, {of("s") * of("n"), of("k")}, DType::i32);
         set_counts(builder, indices, 4, of("s"));
       },
       {{0, given_values({"s", "n", "k"}, [](int64_t i) { return i * i % 5; })}}});
  cases.push_back({"step_counts",
                   {{"E", 4}},
                   [](Builder& builder, const LabelRanges& of) {
                     const Value sum = declared(builder, {of("E")});
                     step_counts(builder, sum, declared(builder, {of("E")}, DType::i32));
                   },
                   {{1, given_values({"E"}, [](int64_t e) { return e + 1; })}}});
}

/// An operation on logits, and its gradient.
template <typename Function>
void add_with_gradient(std::vector<LabelCase>& cases, const std::string& operation,
                       Function write) {
  for (const bool gradient : {false, true}) {
    cases.push_back({operation + (gradient ? "_gradient" : ""), extents_of_routers(),
                     [=](Builder& builder, const LabelRanges& of) {
                       write(builder, declared_matrix(builder, of));
                       if (gradient) write_gradient(builder);
                     }});
  }
}

}  // namespace

std::vector<LabelCase> router_label_cases() {
  std::vector<LabelCase> cases;
  add_with_gradient(cases, "router_softmax",
                    [](Builder& builder, Value logits) { router_softmax(builder, logits); });
  add_with_gradient(cases, "router_z_loss",
                    [](Builder& builder, Value logits) { router_z_loss(builder, logits, 0.3); });
  for (const bool renormalise : {false, true}) {
    for (const bool forced : {false, true}) {
      add_choices(cases, {.k = 0, .renormalise = renormalise, .forced_uniform = forced});
    }
  }
  for (const size_t layers : {1, 2}) {
    add_balance(cases, layers);
    add_balance_of_sets(cases, layers);
    add_earlier_layers(cases, layers);
  }
  add_balance_counts(cases);
  return cases;
}

}  // namespace tessera::testing
