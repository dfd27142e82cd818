#include "ops/activation/activation.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/labels/cases.h"
#include "ops/rotary/rotary.h"
#include "program/view.h"

namespace tessera::testing {
namespace {

constexpr int kRanks[] = {1, 2, 3};

/// [a], [a, b] or [a, b, c].
Shape element_shape(const LabelRanges& of, int rank) {
  const std::vector<int64_t> dims{of("a"), of("b"), of("c")};
  return Shape(std::span(dims).first(static_cast<size_t>(rank)));
}

/// Adds an operation on elements, with `inputs` inputs of each rank.
template <typename Function>
void add_elementwise(std::vector<LabelCase>& cases, const std::string& operation, int inputs,
                     Function write) {
  for (const int rank : kRanks) {
    cases.push_back(
        {operation, {{"a", 4}, {"b", 6}, {"c", 2}}, [=](Builder& builder, const LabelRanges& of) {
           std::vector<Value> values;
           for (int i = 0; i < inputs; ++i) {
             values.push_back(declared(builder, element_shape(of, rank)));
           }
           write(builder, values);
         }});
  }
}

void add_activations(std::vector<LabelCase>& cases) {
  for (const auto& [kind, name] :
       {std::pair(Activation::silu, "swiglu"), std::pair(Activation::gelu, "geglu")}) {
    add_elementwise(cases, name, 2, [=](Builder& builder, const std::vector<Value>& x) {
      gated_activation(builder, x[0], x[1], kind);
    });
    add_elementwise(cases, std::string(name) + "_gradient", 2,
                    [=](Builder& builder, const std::vector<Value>& x) {
                      gated_activation(builder, x[0], x[1], kind);
                      write_gradient(builder);
                    });
  }
}

/// The conversions of one rank. Those of several ranks have no labels that could be tried on one.
void add_conversions(std::vector<LabelCase>& cases) {
  add_elementwise(cases, "retype", 1, [](Builder& builder, const std::vector<Value>& x) {
    const Axis axes[] = {builder.program().mesh().tensor(), builder.program().mesh().context()};
    use(builder, x[0], axes);
  });
  add_elementwise(cases, "cross", 1, [](Builder& builder, const std::vector<Value>& x) {
    cross(builder, x[0], MeshView::expert);
  });
}

void add_rotary(std::vector<LabelCase>& cases) {
  cases.push_back({"rotary_table",
                   {{"t", 6}},
                   [](Builder& builder, const LabelRanges& of) {
                     const Value positions = declared(builder, {of("t")}, DType::i32);
                     rotary_table(builder, positions, {.channels = 4}, DType::f64);
                   },
                   {{0, given_values({"t"}, [](int64_t i) { return 3 * i + 1; })}}});
  for (const bool gradient : {false, true}) {
    cases.push_back({gradient ? "rotary_gradient" : "rotary",
                     {{"t", 4}, {"h", 6}, {"d", 6}, {"r", 4}},
                     [=](Builder& builder, const LabelRanges& of) {
                       const Value x = declared(builder, {of("t"), of("h") * of("d")});
                       rotary(builder, x, declared(builder, {of("t"), of("r")}), of("d"));
                       if (gradient) write_gradient(builder);
                     }});
  }
}

void add_views(std::vector<LabelCase>& cases) {
  const std::map<std::string, int64_t> extents{{"w0", 24}, {"w1", 4}};
  for (const Shape& shape : {Shape{8}, Shape{2, 5}, Shape{2, 3, 2}}) {
    cases.push_back({"view", extents, [=](Builder& builder, const LabelRanges& of) {
                       view(builder, declared(builder, {of("w0")}), 7, shape);
                     }});
    cases.push_back({"view", extents, [=](Builder& builder, const LabelRanges& of) {
                       view(builder, declared(builder, {of("w0"), of("w1")}), 7, shape);
                     }});
  }
  cases.push_back({"join_parts",
                   {{"p0_0", 4}, {"p1_0", 2}, {"p1_1", 3}},
                   [](Builder& builder, const LabelRanges& of) {
                     const Value first = declared(builder, {of("p0_0")});
                     const Value second = declared(builder, {of("p1_0"), of("p1_1")});
                     join_parts(builder, {first, second}, {1, 3}, {10});
                   }});
}

}  // namespace

std::vector<LabelCase> element_label_cases() {
  using Inputs = std::vector<Value>;
  std::vector<LabelCase> cases;
  for (const int addends : {1, 2, 3, 4}) {
    add_elementwise(cases, "add", addends,
                    [](Builder& builder, const Inputs& x) { add(builder, x, DType::f64); });
  }
  add_elementwise(cases, "scale", 1,
                  [](Builder& builder, const Inputs& x) { scale(builder, x[0], -1.5); });
  add_elementwise(cases, "cast", 1,
                  [](Builder& builder, const Inputs& x) { cast(builder, x[0], DType::f32); });
  add_elementwise(cases, "accumulate", 2,
                  [](Builder& builder, const Inputs& x) { accumulate(builder, x[0], x[1]); });
  add_elementwise(cases, "clamp", 1,
                  [](Builder& builder, const Inputs& x) { clamp(builder, x[0], 0.7); });
  add_elementwise(cases, "clamp_gradient", 1, [](Builder& builder, const Inputs& x) {
    clamp(builder, x[0], 0.7);
    write_gradient(builder);
  });
  add_activations(cases);
  add_conversions(cases);
  add_rotary(cases);
  add_views(cases);
  return cases;
}

}  // namespace tessera::testing
