#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "program/builder.h"
#include "support/label_case.h"

namespace tessera::testing {

// The table of all operations, each with every text of labels that it can give.

std::vector<LabelCase> element_label_cases();
std::vector<LabelCase> product_label_cases();
std::vector<LabelCase> norm_label_cases();
std::vector<LabelCase> attention_label_cases();
std::vector<LabelCase> cca_label_cases();
std::vector<LabelCase> router_label_cases();
std::vector<LabelCase> depth_router_label_cases();
std::vector<LabelCase> routing_label_cases();
std::vector<LabelCase> update_label_cases();

inline std::vector<LabelCase> all_label_cases() {
  std::vector<LabelCase> all;
  for (auto* const family : {element_label_cases, product_label_cases, norm_label_cases,
                             attention_label_cases, cca_label_cases, router_label_cases,
                             depth_router_label_cases, routing_label_cases, update_label_cases}) {
    const std::vector<LabelCase> cases = family();
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

/// Declares an input of its own.
inline Value declared(Builder& builder, const Shape& shape, DType dtype = DType::f64) {
  return builder.input(fmt::format("input{}", builder.program().values().size()),
                       {shape, dtype, {}});
}

/// Declares a weight, which has a main gradient.
inline Value declared_weight(Builder& builder, const Shape& shape) {
  return builder.parameter(fmt::format("weight{}", builder.program().values().size()),
                           {shape, DType::f64, {}});
}

/// Declares the gradients of these outputs of the last node, and lets it build its own gradient.
inline void write_gradient(Builder& builder, std::initializer_list<size_t> outputs = {0}) {
  const Node node = builder.program().nodes().back();
  std::vector<Value> gradients(node.outputs.size());
  for (const size_t output : outputs) {
    gradients[output] = declared(builder, builder.spec(node.outputs[output]).shape);
  }
  node.operation->gradient(builder, node, gradients);
}

/// Given values value(0), value(1) and so on, as many as the product of the labels' extents.
template <typename Function>
GivenInput given_values(std::vector<std::string> labels, Function value) {
  return {[=](const LabelRanges& of) {
    int64_t count = 1;
    for (const std::string& label : labels) count *= of(label);
    std::vector<int32_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(value(i)));
    return values;
  }};
}

}  // namespace tessera::testing
