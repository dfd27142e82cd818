#include "ops/cca/delay.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/labels/cases.h"

namespace tessera::testing {
namespace {

/// Adds an operation and its gradient.
void add_with_gradient(std::vector<LabelCase>& cases, const LabelCase& forward,
                       std::map<size_t, GivenInput> given_gradient, bool two_outputs = false) {
  cases.push_back(forward);
  LabelCase gradient = forward;
  gradient.operation += "_gradient";
  gradient.given = std::move(given_gradient);
  gradient.write = [write = forward.write, two_outputs](Builder& builder, const LabelRanges& of) {
    write(builder, of);
    two_outputs ? write_gradient(builder, {0, 1}) : write_gradient(builder);
  };
  cases.push_back(gradient);
}

/// Sequences of six tokens, whose second document begins at position 2 and third one at 3.
constexpr int64_t kTokens = 6;

GivenInput document_starts() {
  return given_values({"b", "s"}, [](int64_t i) {
    const int64_t position = i % kTokens;
    return position < 3 ? position / 2 * 2 : 3;
  });
}

SequenceOptions sequences_of(Builder& builder, const LabelRanges& of, bool documents) {
  SequenceOptions options{.sequence = of("s")};
  if (documents) {
    options.document_starts = declared(builder, {of("b") * of("s")}, DType::i32);
  }
  return options;
}

void add_sequences(std::vector<LabelCase>& cases, bool documents) {
  const auto given = [&](size_t input) {
    return documents ? std::map<size_t, GivenInput>{{input, document_starts()}}
                     : std::map<size_t, GivenInput>{};
  };
  add_with_gradient(cases,
                    {"depthwise_taps",
                     {{"b", 3}, {"s", kTokens}, {"c", 6}, {"k", 2}},
                     [=](Builder& builder, const LabelRanges& of) {
                       const Value x = declared(builder, {of("b") * of("s"), of("c")});
                       const Value weight = declared(builder, {of("c"), 2});
                       const Value bias = declared(builder, {of("c")});
                       depthwise_taps(builder, x, weight, bias,
                                      sequences_of(builder, of, documents));
                     },
                     given(3)},
                    given(3));
  add_with_gradient(cases,
                    {"join_delayed",
                     {{"b", 3}, {"s", kTokens}, {"c", 4}, {"e", 6}, {"v", 10}},
                     [=](Builder& builder, const LabelRanges& of) {
                       const Value current = declared(builder, {of("b") * of("s"), of("c")});
                       const Value delayed = declared(builder, {of("b") * of("s"), of("e")});
                       join_delayed(builder, current, delayed,
                                    sequences_of(builder, of, documents));
                     },
                     given(2)},
                    given(1));
}

void add_continued(std::vector<LabelCase>& cases) {
  const GivenInput position = given_values({"u"}, [](int64_t) { return 3; });
  cases.push_back({"cached_depthwise_taps",
                   {{"s", 4}, {"c", 6}, {"k", 2}, {"u", 1}},
                   [](Builder& builder, const LabelRanges& of) {
                     const Value x = declared(builder, {of("s"), of("c")});
                     const Value weight = declared(builder, {of("c"), 2});
                     const Value bias = declared(builder, {of("c")});
                     const Value last_rows = declared(builder, {2, of("c")});
                     cached_depthwise_taps(builder, x, weight, bias, last_rows,
                                           declared(builder, {of("u")}, DType::i32));
                   },
                   {{4, position}}});
  cases.push_back({"cached_join_delayed",
                   {{"s", 4}, {"c", 4}, {"e", 6}, {"u", 1}},
                   [](Builder& builder, const LabelRanges& of) {
                     const Value current = declared(builder, {of("s"), of("c")});
                     const Value delayed = declared(builder, {of("s"), of("e")});
                     const Value last_row = declared(builder, {1, of("e")});
                     cached_join_delayed(builder, current, delayed, last_row,
                                         declared(builder, {of("u")}, DType::i32));
                   },
                   {{3, position}}});
}

void add_products(std::vector<LabelCase>& cases) {
  const std::map<std::string, int64_t> extents{{"t", 4}, {"h", 6}, {"i", 3}, {"k", 2}, {"o", 5}};
  const auto product = [](bool gradient, bool accumulates) {
    return [=](Builder& builder, const LabelRanges& of) {
      const Shape shape{of("h") * of("o"), of("i"), 2};
      const Value taps = declared(builder, {of("t"), of("h") * of("i") * 2});
      const Value weight = accumulates ? declared_weight(builder, shape) : declared(builder, shape);
      grouped_convolution(builder, taps, weight, of("h"));
      if (gradient) write_gradient(builder);
    };
  };
  cases.push_back({"grouped_convolution", extents, product(false, false)});
  cases.push_back({"grouped_convolution_input_gradient", extents, product(true, false)});
  for (const bool accumulates : {false, true}) {
    cases.push_back({"grouped_convolution_weight_gradient", extents, product(true, accumulates)});
  }
}

void add_skip(std::vector<LabelCase>& cases) {
  add_with_gradient(
      cases,
      {"mean_skip_norm",
       {{"t", 4}, {"g", 6}, {"r", 2}, {"d", 4}},
       [](Builder& builder, const LabelRanges& of) {
         const int64_t keys = of("g") * of("d"), queries = of("r") * keys;
         const auto rows = [&] {
           return QueryAndKey{declared(builder, {of("t"), queries}),
                              declared(builder, {of("t"), keys})};
         };
         const QueryAndKey projected = rows(), convolved = rows();
         const QueryAndKey bias{declared(builder, {queries}), declared(builder, {keys})};
         mean_skip_norm(builder, projected, convolved, bias, declared(builder, {of("g")}),
                        {.head_dim = of("d")});
       }},
      {}, true);
}

}  // namespace

std::vector<LabelCase> cca_label_cases() {
  std::vector<LabelCase> cases;
  for (const bool documents : {false, true}) add_sequences(cases, documents);
  add_continued(cases);
  add_products(cases);
  add_skip(cases);
  return cases;
}

}  // namespace tessera::testing
