#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "support/layouts.h"
#include "support/relative_difference.h"
#include "verify/layout_run.h"

namespace tessera {

inline double relative_difference(const Tensor& expected, const Tensor& found) {
  return testing::relative_difference(expected.values<double>(), found.values<double>());
}

inline ModelConfig laid_out_dense() {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 16;
  config.heads = 4;
  config.kv_heads = 4;
  config.feed_forward_size = 24;
  config.vocabulary_size = 32;
  config.initialization_deviation = 0.2;
  return config;
}

inline ModelConfig laid_out_mixture() {
  ModelConfig config = laid_out_dense();
  config.feed_forward_size = 0;
  config.experts = 8;
  config.experts_per_token = 3;
  config.expert_size = 12;
  config.balance_coefficient = 0.05;
  config.router_z_coefficient = 0.01;
  return config;
}

/// Every axis alone with 2 ranks; all of them with 8 and 16. LayoutOfFamily has the pairs. The
/// layouts of a dense model have no experts' ranks.
inline std::vector<MeshSizes> few_layouts(bool mixture) {
  std::vector<MeshSizes> result = testing::every_layout(2);
  result.push_back({.tensor = 2, .context = 2, .data = {2}});
  result.push_back({.context = 2, .data = {2, 2}, .expert = 4});
  result.push_back({.tensor = 2, .context = 2, .data = {4}, .expert = 8});
  if (!mixture) std::erase_if(result, [](const MeshSizes& sizes) { return sizes.expert > 1; });
  return result;
}

inline void expect_same_model(const LayoutResults& expected, const LayoutResults& found) {
  ASSERT_EQ(expected.steps.size(), found.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
    EXPECT_NEAR(b.cross_entropy / a.cross_entropy, 1, 1e-12);
    EXPECT_NEAR(b.balance, a.balance, 1e-12 * a.balance);
    EXPECT_NEAR(b.router_z, a.router_z, 1e-12 * a.router_z);
    EXPECT_NEAR(b.gradient_norm / a.gradient_norm, 1, 1e-12);
    EXPECT_EQ(expected.steps[i].expert_tokens, found.steps[i].expert_tokens);
  }
  for (const auto& [name, tensor] : expected.gradients[0]) {
    EXPECT_LT(relative_difference(tensor, found.gradients[0].at(name)), 1e-11) << name;
  }
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(relative_difference(tensor, found.weights.at(name)), 1e-10) << name;
  }
}

}  // namespace tessera
