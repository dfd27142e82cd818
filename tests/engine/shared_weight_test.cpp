#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "program/view.h"
#include "support/mesh_programs.h"

namespace tessera::testing {
namespace {

/// A use of the weight: the axes that split the rows of what it is multiplied with, outermost
/// first.
using Use = std::vector<Axis>;

/// The sum of products of one weight with several x, each split in its own way.
void write_uses(Builder& builder, std::span<const Use> uses, bool as_part) {
  const Mesh& mesh = builder.program().mesh();
  Value weight;
  if (as_part) {
    const Value unit = builder.parameter("unit", {{64}, DType::f64, {}});
    weight = view(builder, unit, 16, {3, 4}, {}, "weight");
  } else {
    weight = builder.parameter("weight", {{3, 4}, DType::f64, {}});
  }
  std::vector<Value> addends;
  for (size_t i = 0; i < uses.size(); ++i) {
    Distribution rows;
    int64_t own = 8;
    for (const Axis axis : uses[i]) {
      rows = rows.with(axis, sharded(0));
      own /= mesh.size(axis);
    }
    const Value x = builder.input(fmt::format("x{}", i), {{own, 4}, DType::f64, rows});
    Value y = linear(builder, x, use_like(builder, weight, x));
    for (size_t a = uses[i].size(); a-- > 0;) {
      y = convert(builder, y, uses[i][a], Placement::sharded, invariant());
    }
    addends.push_back(y);
  }
  const Value y = add(builder, addends, DType::f64);
  const Value seed = builder.input("seed", {{8, 3}, DType::f64, {}});
  differentiate(builder, std::vector{Seed{y, seed}});
}

/// The sum of what the ranks have of the main gradient, taken over the axes where it is partial.
std::vector<double> gradient_of(const Mesh& mesh, std::span<const Use> uses, bool as_part,
                                std::map<std::string, Tensor> given) {
  const auto write = [&](Builder& builder) {
    write_uses(builder, uses, as_part);
    const Program& program = builder.program();
    Value gradient = program.main_gradient(program.find(as_part ? "unit" : "weight"));
    std::vector<Axis> axes;
    for (const Axis axis : mesh.axes_of(MeshView::dense)) {
      if (program.spec(gradient).distribution.on(axis) == partial()) axes.push_back(axis);
    }
    gradient = take_sum(builder, gradient, axes);
    if (as_part) gradient = view(builder, gradient, 16, {3, 4});
    builder.name(gradient, "sum");
    builder.output(gradient);
  };
  return numbers_of(MeshRun(mesh, write, give_parts(mesh, std::move(given))).whole("sum"));
}

/// Uses of one weight on axes that differ: each adds its part once. Plain loops give the sum.
TEST(SharedWeight, UsesOnOtherAxesAddUpToOneGradient) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const Axis t = mesh.tensor(), d = mesh.data()[0];
  const std::vector<std::vector<Use>> all{{{t}, {}},     {{}, {t}},  {{t}, {d, t}},
                                          {{d, t}, {t}}, {{d}, {t}}, {{}, {d}, {d, t}, {}}};
  for (const std::vector<Use>& uses : all) {
    const Tensor seed = tensor_of({8, 3}, DType::f64, small_numbers(24, "seed"));
    std::map<std::string, Tensor> given{{"seed", seed}};
    given.emplace("weight", tensor_of({3, 4}, DType::f64, small_numbers(12, "weight")));
    given.emplace("unit", tensor_of({64}, DType::f64, small_numbers(64, "unit")));
    std::vector<double> expected(12, 0.0);
    for (size_t i = 0; i < uses.size(); ++i) {
      const std::string name = fmt::format("x{}", i);
      const Tensor x = tensor_of({8, 4}, DType::f64, small_numbers(32, name));
      given.emplace(name, x);
      for (size_t row = 0; row < 8; ++row) {
        for (size_t o = 0; o < 3; ++o) {
          for (size_t c = 0; c < 4; ++c) {
            expected[o * 4 + c] +=
                seed.values<double>()[row * 3 + o] * x.values<double>()[row * 4 + c];
          }
        }
      }
    }
    for (const bool as_part : {false, true}) {
      EXPECT_EQ(gradient_of(mesh, uses, as_part, given), expected) << uses.size() << as_part;
      EXPECT_EQ(gradient_of(Mesh(), uses, as_part, given), expected) << uses.size() << as_part;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
