#include "train/layout_run.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "model/families/families.h"

namespace tessera {
namespace {

/// The largest difference of two tensors over the largest number in the first.
double relative_difference(const Tensor& expected, const Tensor& found) {
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double number = expected.data<double>()[i];
    largest = std::max(largest, std::abs(number));
    difference = std::max(difference, std::abs(number - found.data<double>()[i]));
  }
  return difference / std::max(largest, 1e-300);
}

ModelConfig dense() {
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

void expect_same(const LayoutTrial& trial, const std::string& layout) {
  SCOPED_TRACE(layout);
  const auto batches = random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
  LayoutTrial one = trial;
  one.mesh = Mesh();
  const LayoutResults expected = run_layout(one, batches);
  const LayoutResults found = run_layout(trial, batches);
  ASSERT_EQ(expected.steps.size(), found.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResults &a = expected.steps[i].results, &b = found.steps[i].results;
    EXPECT_NEAR(b.cross_entropy / a.cross_entropy, 1, 1e-12);
    EXPECT_NEAR(b.gradient_norm / a.gradient_norm, 1, 1e-12);
    EXPECT_EQ(expected.steps[i].expert_tokens, found.steps[i].expert_tokens);
  }
  for (const auto& [name, tensor] : expected.gradients) {
    EXPECT_LT(relative_difference(tensor, found.gradients.at(name)), 1e-11) << name;
  }
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(relative_difference(tensor, found.weights.at(name)), 1e-10) << name;
  }
}

TEST(LayoutRun, ADenseModelIsTheSameOnEveryMesh) {
  const ProgramSize size{.sequences = 4, .context = 8, .document_mask = true};
  for (const MeshSizes& sizes : {MeshSizes{.data = {2}}, MeshSizes{.tensor = 2},
                                 MeshSizes{.tensor = 2, .data = {2}}, MeshSizes{.tensor = 4},
                                 MeshSizes{.context = 2}, MeshSizes{.data = {2, 2}},
                                 MeshSizes{.tensor = 2, .context = 2, .data = {2}}}) {
    const LayoutTrial trial{.model = dense(), .size = size, .mesh = Mesh(sizes)};
    expect_same(trial, trial.mesh.text());
  }
}

}  // namespace
}  // namespace tessera
