#include <optional>

#include "ops/labels/cases.h"
#include "ops/moe/skip_class.h"
#include "ops/router/balance_biases.h"
#include "ops/router/router_network.h"

// What ZAYA1's routers have beside those of other families.

namespace tessera::testing {
namespace {

using Write = std::function<void(Builder&, const LabelRanges&)>;

/// Adds an operation and its gradient.
void add_with_gradient(std::vector<LabelCase>& cases, const std::string& operation,
                       const std::map<std::string, int64_t>& extents, const Write& write) {
  cases.push_back({operation, extents, write});
  cases.push_back({operation + "_gradient", extents, [=](Builder& builder, const LabelRanges& of) {
                     write(builder, of);
                     write_gradient(builder);
                   }});
}

void add_network(std::vector<LabelCase>& cases) {
  const std::map<std::string, int64_t> extents{{"n", 6}, {"c", 4}};
  for (const bool first : {false, true}) {
    add_with_gradient(cases, "depth_average", extents,
                      [=](Builder& builder, const LabelRanges& of) {
                        const Value x = declared(builder, {of("n"), of("c")});
                        const Value bias = declared(builder, {of("c")});
                        std::optional<Value> scale, previous;
                        if (!first) {
                          scale = declared(builder, {of("c")});
                          previous = declared(builder, {of("n"), of("c")});
                        }
                        depth_average(builder, x, bias, scale, previous);
                      });
  }
  add_with_gradient(cases, "biased_gelu", extents, [](Builder& builder, const LabelRanges& of) {
    const Value x = declared(builder, {of("n"), of("c")});
    biased_gelu(builder, x, declared(builder, {of("c")}));
  });
}

void add_skip_class(std::vector<LabelCase>& cases) {
  constexpr int64_t kExperts = 3;
  const std::map<std::string, int64_t> extents{{"n", 6}, {"c", 4}, {"k", 2}};
  const auto write = [](Builder& builder, const LabelRanges& of) {
    const Value output = declared(builder, {of("n"), of("c")});
    const Value x = declared(builder, {of("n"), of("c")});
    const Value weights = declared(builder, {of("n"), of("k")});
    const Value indices = declared(builder, {of("n"), of("k")}, DType::i32);
    add_skipped(builder, output, x, {weights, indices}, kExperts);
  };
  const GivenInput chosen = given_values({"n", "k"}, [](int64_t i) { return i % (kExperts + 1); });
  cases.push_back({"add_skipped", extents, write, {{3, chosen}}});
  cases.push_back({"add_skipped_gradient",
                   extents,
                   [=](Builder& builder, const LabelRanges& of) {
                     write(builder, of);
                     write_gradient(builder);
                   },
                   {{2, chosen}}});
}

void add_balancing(std::vector<LabelCase>& cases) {
  const std::map<std::string, int64_t> extents{{"E", 4}, {"u", 1}};
  cases.push_back({"step_balance",
                   extents,
                   [](Builder& builder, const LabelRanges& of) {
                     const Value biases = declared(builder, {of("E")});
                     const Value first = declared(builder, {of("E")});
                     const Value second = declared(builder, {of("E")});
                     const Value step = declared(builder, {1});
                     step_balance(builder, {biases, first, second, step},
                                  declared(builder, {of("E")}, DType::i32), {});
                   },
                   {{4, given_values({"E"}, [](int64_t e) { return 3 * e + 1; })}},
                   {2, 3}});
  cases.push_back({"balance_by_sign", extents, [](Builder& builder, const LabelRanges& of) {
                     const Value biases = declared(builder, {of("E")});
                     balance_by_sign(builder, biases, declared(builder, {of("E")}), 0.25);
                   }});
}

}  // namespace

std::vector<LabelCase> depth_router_label_cases() {
  std::vector<LabelCase> cases;
  add_network(cases);
  add_skip_class(cases);
  add_balancing(cases);
  return cases;
}

}  // namespace tessera::testing
