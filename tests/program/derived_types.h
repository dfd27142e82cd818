#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "program/derive.h"
#include "support/refusal_of.h"

namespace tessera::testing {

/// Operands by their types on a mesh of 2 x 2 x 2 ranks, and what is derived from them.
class DerivedTypes : public ::testing::Test {
 protected:
  DerivedTypes()
      : mesh({.tensor = 2, .context = 2, .data = {2}, .expert = 4}),
        t(mesh.tensor()),
        c(mesh.context()),
        d(mesh.data()[0]),
        e(mesh.expert()),
        x(mesh.expert_data()[0]) {}

  using Types = std::vector<std::pair<Axis, TypeOnAxis>>;

  TypedOperand value(std::string name, const Shape& shape, const Types& types = {},
                     MeshView view = MeshView::dense) const {
    Distribution distribution(view);
    for (const auto& [axis, type] : types) distribution = distribution.with(axis, type);
    return {std::move(name), {shape, DType::f64, distribution}, true};
  }
  static TypedOperand constant(TypedOperand operand) {
    operand.differentiable = false;
    return operand;
  }

  std::vector<Distribution> derive(std::string_view labels, std::vector<TypedOperand> inputs,
                                   const HandRule& by_hand = {}) const {
    return derive_distributions(mesh, "operation", parse_labels(labels), inputs, by_hand);
  }
  std::string text(std::string_view labels, std::vector<TypedOperand> inputs) const {
    std::string result;
    for (const Distribution& output : derive(labels, std::move(inputs))) {
      result += (result.empty() ? "" : " | ") + output.text(mesh);
    }
    return result;
  }
  std::string refusal(std::string_view labels, std::vector<TypedOperand> inputs) const {
    return verdict_of([&] { derive(labels, std::move(inputs)); });
  }

  Mesh mesh;
  Axis t, c, d, e, x;
};

}  // namespace tessera::testing
