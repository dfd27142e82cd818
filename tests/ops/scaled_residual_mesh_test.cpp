// Residual scaling over the ranks of a mesh: tokens may be split over any axes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/norm/scaled_residual.h"
#include "ops/rank_results.h"
#include "support/refusal_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAllTokens = 12, kRowSize = 10;

/// Writes the program of a rank: results and gradients are outputs with names.
void write_scaled_on_mesh(Builder& builder) {
  const Mesh& mesh = builder.program().mesh();
  const Axis data = mesh.data().front(), tensor = mesh.tensor();
  const Distribution split = Distribution().with(data, sharded(0)).with(tensor, sharded(0));
  const Distribution all = Distribution().with(data, replicated()).with(tensor, replicated());
  const auto rows = [&](const std::string& name) {
    return builder.input(name, {{kAllTokens / mesh.ranks(), kRowSize}, DType::f64, split});
  };
  const auto vector = [&](const std::string& name) {
    return builder.input(name, {{kRowSize}, DType::f64, all});
  };
  const Value x = rows("x"), stream = rows("stream"), weight = vector("weight");
  const ResidualScale x_scaling{vector("x_scale"), vector("x_bias")};
  const ResidualScale stream_scaling{vector("stream_scale"), vector("stream_bias")};
  const ScaledResidual result =
      scaled_residual_norm(builder, x, x_scaling, stream, stream_scaling, weight, {});
  testing::mark(builder, result.output, "output");
  testing::mark(builder, result.stream, "new_stream");
  const std::vector<Seed> seeds{{result.output, rows("output_seed"), SeedKind::boundary},
                                {result.stream, rows("stream_seed"), SeedKind::boundary}};
  const std::vector<Value> inputs{x,      x_scaling.scale,      x_scaling.bias,     stream,
                                  weight, stream_scaling.scale, stream_scaling.bias};
  const std::vector<Value> gradients = differentiate(builder, seeds, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    testing::mark(builder, gradients[i], "of_" + builder.program().info(inputs[i]).name);
  }
}

TEST(ScaledResidualOnMeshes, ResultsAndGradientsAreThoseOfOneRank) {
  std::map<std::string, Tensor> inputs;
  for (const std::string name : {"x", "stream", "output_seed", "stream_seed"}) {
    inputs[name] = testing::random_tensor({kAllTokens, kRowSize}, DType::f64, name);
  }
  for (const std::string name : {"x_scale", "x_bias", "stream_scale", "stream_bias", "weight"}) {
    inputs[name] = testing::random_tensor({kRowSize}, DType::f64, name);
  }
  const auto run_on = [&](const MeshSizes& sizes) {
    const Mesh mesh(sizes);
    return testing::MeshRun(mesh, write_scaled_on_mesh, testing::give_parts(mesh, inputs));
  };
  const testing::MeshRun one = run_on({.data = {1}});
  for (const MeshSizes& sizes :
       {MeshSizes{.data = {4}}, MeshSizes{.tensor = 2}, MeshSizes{.tensor = 2, .data = {2}}}) {
    const testing::MeshRun several = run_on(sizes);
    for (const std::string name : {"output", "new_stream", "of_x", "of_stream", "of_x_scale",
                                   "of_x_bias", "of_stream_scale", "of_stream_bias", "of_weight"}) {
      testing::expect_close(testing::as_doubles(several.whole(name)),
                            testing::as_doubles(one.whole(name)), {0, 1e-13}, name);
    }
  }
}

TEST(ScaledResidualOnMeshes, SplitRowsAreRefused) {
  const Mesh mesh({.tensor = 2});
  Program program(mesh, 0);
  Builder builder(program);
  const Value x =
      builder.input("x", {{4, 6}, DType::f32, Distribution().with(mesh.tensor(), sharded(1))});
  const Value vector =
      builder.input("vector", {{6}, DType::f32, Distribution().with(mesh.tensor(), replicated())});
  const std::string refusal = testing::refusal_of([&] {
    scaled_residual_norm(builder, x, {vector, vector}, {}, {}, vector, {});
  });
  EXPECT_THAT(refusal, HasSubstr("scaled_residual_norm"));
  EXPECT_THAT(refusal, HasSubstr("dim 1 (channel) must be whole"));
}

}  // namespace
}  // namespace tessera
