#include "support/mesh_programs.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/linear/linear.h"

namespace tessera::testing {
namespace {

Tensor counted(const Shape& shape) {
  const Tensor result(shape, DType::f64);
  for (int64_t i = 0; i < result.elements(); ++i) result.data<double>()[i] = static_cast<double>(i);
  return result;
}

/// A linear map of tokens that are split over data, by a weight that is split by its outputs over
/// tensor: nothing has to move, but the weight's gradient is partial.
void write_linear(Builder& builder) {
  const Mesh& mesh = builder.program().mesh();
  const Axis t = mesh.tensor();
  const Axis d = mesh.data()[0];
  const Distribution rows = Distribution().with(d, sharded(0, {PieceKind::zigzag}));
  const Value x =
      builder.input("x", {{8 / mesh.size(d), 3}, DType::f64, rows.with(t, replicated())});
  const Value weight =
      builder.parameter("weight", {{4 / mesh.size(t), 3},
                                   DType::f64,
                                   Distribution().with(t, sharded(0)).with(d, replicated())});
  const Value y = linear(builder, x, weight);
  builder.name(y, "y");
  builder.output(y);
  const Value seed = builder.input("seed", builder.spec(y));
  const Value of_x =
      differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x})[0];
  builder.name(of_x, "of_x");
  builder.output(of_x);
}

TEST(MeshRun, GivesOnManyRanksWhatItGivesOnOne) {
  const auto run = [](const MeshSizes& sizes) {
    const Mesh mesh(sizes);
    const MeshRun ranks(mesh, write_linear,
                        give_parts(mesh, {{"x", counted({8, 3})},
                                          {"weight", counted({4, 3})},
                                          {"seed", counted({8, 4})}}));
    std::vector<std::vector<double>> wholes;
    for (const char* name : {"y", "of_x", "gradient:weight"}) {
      wholes.push_back(numbers_of(ranks.whole(name)));
    }
    EXPECT_EQ(ranks.value(mesh.ranks() - 1, "y").elements(), 32 / mesh.ranks());
    return wholes;
  };
  const auto expected = run({});
  EXPECT_EQ(expected[0][4], 3 * 0 + 4 * 1 + 5 * 2);  // row 1 of x, row 0 of the weight
  EXPECT_EQ(run({.tensor = 2}), expected);
  EXPECT_EQ(run({.data = {2}}), expected);
  EXPECT_EQ(run({.tensor = 4, .data = {2}}), expected);
}

/// The other rank is woken, and what it throws follows from the first error.
TEST(MeshRun, ThrowsWhatARankThrew) {
  const Mesh mesh({.tensor = 2});
  const auto give = [](int rank, const ValueInfo& value) {
    if (rank == 1) throw Error("rank 1 has no {}", value.name);
    return counted(value.spec.shape);
  };
  EXPECT_THROW(MeshRun(mesh, write_linear, give), Error);
}

TEST(RankPieces, MakeTheirWholeAgain) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  const Tensor whole = counted({16, 6});
  const Axis t = mesh.tensor(), c = mesh.context(), d = mesh.data()[0];
  const Distribution nothing;
  const std::vector<Distribution> all{
      nothing, nothing.with(t, partial()).with(d, partial()),
      nothing.with(d, sharded(0)).with(c, sharded(0, {PieceKind::zigzag}, 1, 2)),
      nothing.with(t, sharded(1, {PieceKind::uneven, {5, 1}})).with(c, partial()),
      nothing.with(t, replicated()).with(d, sharded(1)).with(c, partial())};
  for (const Distribution& distribution : all) {
    std::vector<Tensor> parts;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      parts.push_back(part_of_rank(mesh, distribution, whole, rank));
    }
    const std::string text = distribution.text(mesh);
    EXPECT_EQ(numbers_of(whole_of_ranks(mesh, distribution, parts, text)), numbers_of(whole))
        << text;
  }
}

TEST(RankPieces, OfRanksThatDifferFailTheTest) {
  const Mesh mesh({.tensor = 2});
  const std::vector<Tensor> parts{tensor_of({2}, DType::f64, std::vector{1.0, 2.0}),
                                  tensor_of({2}, DType::f64, std::vector{1.0, 3.0})};
  EXPECT_NONFATAL_FAILURE(whole_of_ranks(mesh, Distribution(), parts, "y"),
                          "y: ranks differ that must have the same");
  const Tensor sum =
      whole_of_ranks(mesh, Distribution().with(mesh.tensor(), partial()), parts, "y");
  EXPECT_EQ(numbers_of(sum), (std::vector<double>{2, 5}));
}

}  // namespace
}  // namespace tessera::testing
