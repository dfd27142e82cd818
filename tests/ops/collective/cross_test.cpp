#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "support/mesh_programs.h"

namespace tessera::testing {
namespace {

/// Tokens of three dense axes cross to the experts' view and back. There, the ranks of the expert
/// axis gather their rows and scatter sums of them.
TEST(Cross, LeavesEachRankItsTokens) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}, .expert = 4});
  const auto write = [&](Builder& builder) {
    Distribution tokens;
    for (const Axis axis : mesh.axes_of(MeshView::dense)) tokens = tokens.with(axis, sharded(0));
    const Value x = builder.input("x", {{2, 3}, DType::f64, tokens});
    const Value crossed = cross(builder, x, MeshView::expert);
    EXPECT_EQ(builder.program().base(crossed), x);
    const TypeOnAxis own = builder.spec(crossed).distribution.on(mesh.expert());
    const Value all = convert(builder, crossed, mesh.expert(), Placement::varying, replicated());
    builder.name(all, "all");
    builder.output(all);
    // A term that all ranks have counts once, and those of all ranks are summed.
    const Value sums =
        convert(builder, scale(builder, all, 3), mesh.expert(), Placement::replicated, partial());
    const Value back = convert(builder, sums, mesh.expert(), Placement::partial, own);
    const Value y = cross(builder, back, MeshView::dense);
    EXPECT_EQ(builder.spec(y).distribution, tokens);
    builder.name(y, "y");
    builder.output(y);
    const Value seed = builder.input("seed", builder.spec(y));
    const Value of_x =
        differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x})[0];
    builder.name(of_x, "of_x");
    builder.output(of_x);
  };
  const auto numbers = [&](const char* name) {
    return tensor_of({16, 3}, DType::f64, small_numbers(48, name));
  };
  const MeshRun run(mesh, write,
                    give_parts(mesh, {{"x", numbers("x")}, {"seed", numbers("seed")}}));
  const auto times_three = [&](const char* name) {
    std::vector<double> result = numbers_of(numbers(name));
    for (double& number : result) number *= 3;
    return result;
  };
  EXPECT_EQ(numbers_of(run.whole("y")), times_three("x"));
  EXPECT_EQ(numbers_of(run.whole("of_x")), times_three("seed"));
  // Ranks 0 to 3 share experts, and ranks 4 to 7. Each has the rows of its four in their order.
  for (int rank = 0; rank < 8; ++rank) {
    std::vector<double> expected;
    const Distribution& lies = run.program().spec(run.program().find("x")).distribution;
    for (int other = rank / 4 * 4; other < rank / 4 * 4 + 4; ++other) {
      const auto part = numbers_of(part_of_rank(mesh, lies, numbers("x"), other));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(numbers_of(run.value(rank, "all")), expected) << rank;
  }
}

/// One copy, addends and copies for own use cross as they are.
TEST(Cross, KeepsTheTypeThatAllAxesHave) {
  const Mesh mesh({.tensor = 2, .data = {2}, .expert = 2});
  for (const TypeOnAxis& type : {invariant(), replicated(), partial()}) {
    const auto write = [&](Builder& builder) {
      Distribution before;
      for (const Axis axis : mesh.axes_of(MeshView::dense)) before = before.with(axis, type);
      const Value x = builder.input("x", {{3}, DType::f64, before});
      const Value y = scale(builder, cross(builder, x, MeshView::expert), 2);
      builder.name(y, "y");
      builder.output(y);
      Spec spec = builder.spec(y);
      spec.distribution = spec.distribution.dual();
      const Value seed = builder.input("seed", spec);
      const Value of_x =
          differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x})[0];
      builder.name(of_x, "of_x");
      builder.output(of_x);
    };
    const Tensor numbers = tensor_of({3}, DType::f64, std::vector{1.0, -2.0, 5.0});
    const MeshRun run(mesh, write, give_parts(mesh, {{"x", numbers}, {"seed", numbers}}));
    EXPECT_EQ(numbers_of(run.whole("y")), (std::vector{2.0, -4.0, 10.0})) << type.text();
    EXPECT_EQ(numbers_of(run.whole("of_x")), (std::vector{2.0, -4.0, 10.0})) << type.text();
  }
}

/// Ranks that have different numbers of tokens gather them, and get their part of a sum back.
TEST(Cross, GathersUnevenTokens) {
  for (const int experts : {1, 2, 4}) {
    const Mesh mesh({.tensor = 2, .context = 2, .expert = experts});
    const Distribution tokens = Distribution()
                                    .with(mesh.data()[0], sharded(0))
                                    .with(mesh.context(), sharded(0))
                                    .with(mesh.tensor(), sharded(0, {PieceKind::uneven, {3, 5}}));
    const auto write = [&](Builder& builder) {
      const int64_t own = builder.program().rank() % 2 == 0 ? 3 : 5;
      const Value x = builder.input("x", {{own, 2}, DType::f64, tokens});
      Value all = cross(builder, x, MeshView::expert);
      for (const Axis axis : {mesh.expert(), mesh.expert_data()[0]}) {
        all = convert(builder, all, axis, Placement::varying, replicated());
      }
      const Value seed =
          builder.input("seed", {{16, 2}, DType::f64, builder.spec(all).distribution.dual()});
      builder.name(all, "all");
      builder.output(all);
      const Value of_x = differentiate(builder, std::vector{Seed{all, seed, SeedKind::boundary}},
                                       std::vector{x})[0];
      EXPECT_EQ(builder.spec(of_x), builder.spec(x));
      builder.name(of_x, "of_x");
      builder.output(of_x);
    };
    const Tensor x = tensor_of({16, 2}, DType::f64, small_numbers(32, "x"));
    const Tensor seed = tensor_of({16, 2}, DType::f64, small_numbers(32, "seed"));
    const MeshRun run(mesh, write, give_parts(mesh, {{"x", x}, {"seed", seed}}));
    EXPECT_EQ(numbers_of(run.whole("all")), numbers_of(x)) << experts;
    EXPECT_EQ(numbers_of(run.whole("of_x")), numbers_of(seed)) << experts;
  }
}

}  // namespace
}  // namespace tessera::testing
