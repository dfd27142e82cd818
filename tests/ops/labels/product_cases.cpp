#include <map>

#include "ops/activation/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/labels/cases.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/moe/grouped_linear.h"

namespace tessera::testing {
namespace {

/// Several weights on one input differ in their outputs: o0, o1 and so on.
std::string output_label(size_t weight) { return fmt::format("o{}", weight); }

/// Their extents, all multiples of 3.
std::map<std::string, int64_t> with_outputs(std::map<std::string, int64_t> extents,
                                            size_t weights) {
  for (size_t i = 0; i < weights; ++i) {
    extents[output_label(i)] = i == 0 ? 6 : 3 * static_cast<int64_t>(2 * i - 1);
  }
  return extents;
}

void add_linears(std::vector<LabelCase>& cases, size_t weights) {
  const auto extents = with_outputs({{"t", 4}, {"i", 6}}, weights);
  cases.push_back({"linear", extents, [=](Builder& builder, const LabelRanges& of) {
                     const Value x = declared(builder, {of("t"), of("i")});
                     std::vector<Value> all;
                     for (size_t i = 0; i < weights; ++i) {
                       all.push_back(declared(builder, {of(output_label(i)), of("i")}));
                     }
                     linears(builder, x, all);
                   }});
  cases.push_back({"linear_input_gradient", extents, [=](Builder& builder, const LabelRanges& of) {
                     const Value x = declared(builder, {of("t"), of("i")});
                     std::vector<Value> gradients, all;
                     for (size_t i = 0; i < weights; ++i) {
                       gradients.push_back(declared(builder, {of("t"), of(output_label(i))}));
                       all.push_back(declared(builder, {of(output_label(i)), of("i")}));
                     }
                     linear_input_gradient(builder, gradients, all, x);
                   }});
}

/// Declares a weight that has a main gradient, or a value that has none.
Value some_weight(Builder& builder, bool accumulates, const Shape& shape) {
  return accumulates ? declared_weight(builder, shape) : declared(builder, shape);
}

void add_weight_gradient(std::vector<LabelCase>& cases, bool accumulates) {
  cases.push_back({"linear_weight_gradient",
                   {{"t", 4}, {"i", 6}, {"o", 6}},
                   [=](Builder& builder, const LabelRanges& of) {
                     const Value x = declared(builder, {of("t"), of("i")});
                     const Value gradient = declared(builder, {of("t"), of("o")});
                     linear_weight_gradient(builder, x, gradient,
                                            some_weight(builder, accumulates, {of("o"), of("i")}));
                   }});
}

/// The first rows of as many experts as a rank has, each with as many rows as it has of each.
GivenInput offsets() {
  return {[](const LabelRanges& of) {
            std::vector<int32_t> offsets;
            for (int64_t e = 0; e <= of("E"); ++e) {
              offsets.push_back(static_cast<int32_t>(e * of("r")));
            }
            return offsets;
          },
          true};
}

Value declared_offsets(Builder& builder, const LabelRanges& of) {
  return declared(builder, {of("E") + 1}, DType::i32);
}

void add_grouped_linears(std::vector<LabelCase>& cases, size_t weights) {
  const auto extents = with_outputs({{"E", 4}, {"r", 4}, {"i", 6}}, weights);
  cases.push_back({"grouped_linear",
                   extents,
                   [=](Builder& builder, const LabelRanges& of) {
                     const Value x = declared(builder, {of("E") * of("r"), of("i")});
                     std::vector<Value> all;
                     for (size_t i = 0; i < weights; ++i) {
                       all.push_back(declared(builder, {of("E"), of(output_label(i)), of("i")}));
                     }
                     grouped_linear(builder, x, all, declared_offsets(builder, of));
                   },
                   {{1 + weights, offsets()}},
                   {}});
  cases.push_back({"grouped_linear_input_gradient",
                   extents,
                   [=](Builder& builder, const LabelRanges& of) {
                     const int64_t rows = of("E") * of("r");
                     const Value x = declared(builder, {rows, of("i")});
                     std::vector<Value> gradients, all;
                     for (size_t i = 0; i < weights; ++i) {
                       const std::string out = output_label(i);
                       gradients.push_back(declared(builder, {rows, of(out)}));
                       all.push_back(declared(builder, {of("E"), of(out), of("i")}));
                     }
                     grouped_linear_input_gradient(builder, gradients, all,
                                                   declared_offsets(builder, of), x);
                   },
                   {{2 * weights, offsets()}},
                   {}});
}

/// Of the rows of experts, up to the last offset.
void add_gated_rows(std::vector<LabelCase>& cases) {
  for (const auto& [kind, name] :
       {std::pair(Activation::silu, "swiglu"), std::pair(Activation::gelu, "geglu")}) {
    for (const bool gradient : {false, true}) {
      const auto write = [=, kind = kind](Builder& builder, const LabelRanges& of) {
        const Shape rows{of("E") * of("r"), of("c")};
        const Value gate = declared(builder, rows), up = declared(builder, rows);
        gated_activation(builder, gate, up, kind, declared_offsets(builder, of));
        if (gradient) write_gradient(builder);
      };
      cases.push_back({std::string(name) + (gradient ? "_gradient" : ""),
                       {{"E", 4}, {"r", 4}, {"c", 6}},
                       write,
                       {{gradient ? 3 : 2, offsets()}},
                       {}});
    }
  }
}

void add_grouped_weight_gradient(std::vector<LabelCase>& cases, bool accumulates) {
  cases.push_back({"grouped_linear_weight_gradient",
                   {{"E", 4}, {"r", 4}, {"i", 6}, {"o", 6}},
                   [=](Builder& builder, const LabelRanges& of) {
                     const int64_t rows = of("E") * of("r");
                     const Value x = declared(builder, {rows, of("i")});
                     const Value gradient = declared(builder, {rows, of("o")});
                     grouped_linear_weight_gradient(
                         builder, x, gradient, declared_offsets(builder, of),
                         some_weight(builder, accumulates, {of("E"), of("o"), of("i")}));
                   },
                   {{2, offsets()}},
                   {}});
}

/// Ids below 5, in no order, with repetitions.
GivenInput ids() {
  return given_values({"t"}, [](int64_t i) { return i * 7 % 5; });
}

void add_embedding(std::vector<LabelCase>& cases) {
  for (const bool accumulates : {false, true}) {
    for (const bool gradient : {false, true}) {
      cases.push_back({gradient ? "embedding_gradient" : "embedding",
                       {{"t", 6}, {"v", 5}, {"c", 4}},
                       [=](Builder& builder, const LabelRanges& of) {
                         const Value table = some_weight(builder, accumulates, {of("v"), of("c")});
                         const Value all_ids = declared(builder, {of("t")}, DType::i32);
                         embedding_of_rows(builder, table, all_ids,
                                           {.first = of.begin("v"), .all = 5});
                         if (gradient) write_gradient(builder);
                       },
                       {{gradient ? 0U : 1U, ids()}}});
    }
  }
}

void add_cross_entropy(std::vector<LabelCase>& cases) {
  enum class Gradients { none, given, accumulated };
  for (const Gradients gradients : {Gradients::none, Gradients::given, Gradients::accumulated}) {
    cases.push_back({"linear_cross_entropy",
                     {{"t", 6}, {"c", 4}, {"v", 5}},
                     [=](Builder& builder, const LabelRanges& of) {
                       const Value x = declared(builder, {of("t"), of("c")});
                       const Value weight = some_weight(
                           builder, gradients == Gradients::accumulated, {of("v"), of("c")});
                       const Value targets = declared(builder, {of("t")}, DType::i32);
                       if (gradients == Gradients::none) {
                         linear_cross_entropy(builder, x, weight, targets, 0.1);
                       } else {
                         linear_cross_entropy_with_gradient(builder, x, weight, targets,
                                                            declared(builder, {1}), 0.1);
                       }
                     },
                     {{2, given_values({"t"}, [](int64_t i) { return i == 1 ? -1 : i * 7 % 5; })}},
                     {},
                     {"v"}});
  }
}

}  // namespace

std::vector<LabelCase> product_label_cases() {
  std::vector<LabelCase> cases;
  for (const size_t weights : {1, 2, 3}) {
    add_linears(cases, weights);
    add_grouped_linears(cases, weights);
  }
  for (const bool accumulates : {false, true}) {
    add_weight_gradient(cases, accumulates);
    add_grouped_weight_gradient(cases, accumulates);
  }
  add_gated_rows(cases);
  add_embedding(cases);
  add_cross_entropy(cases);
  return cases;
}

}  // namespace tessera::testing
