#include <vector>

#include <gtest/gtest.h>

#include "ops/update/muon_measures.h"
#include "ops/update/newton_schulz.h"
#include "support/mesh_programs.h"
#include "support/operation_run.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using testing::MeshRun;

constexpr int64_t kMatrixRows = 6, kMatrixColumns = 10;

/// The orthogonalised matrix, and what is measured of it, of one rank that has all of `matrix`.
std::vector<std::vector<double>> results_of_one_rank(const Tensor& matrix) {
  Program program;
  Builder builder(program);
  const Value input = builder.input("matrix", {matrix.shape(), DType::f64, {}});
  const Value update = newton_schulz(builder, {{input}}, 5).front();
  const MeasuredUpdate measured[] = {{update, 0.7}};
  const Value measures = muon_measures(builder, measured);
  builder.output(update);
  builder.output(measures);
  Runtime runtime(host_target(1));
  testing::ProgramRun run(program, runtime);
  run.bind(input, matrix);
  run.run();
  return {testing::as_doubles(run[update]), testing::as_doubles(run[measures])};
}

TEST(MuonOfBlocks, TakesEachRanksPieceForAMatrix) {
  const Mesh mesh({.tensor = 2});
  const Tensor whole = testing::drawn({{kMatrixRows, kMatrixColumns}, DType::f64, {}}, "matrix");
  for (const int dim : {0, 1}) {
    const auto write = [&](Builder& builder) {
      const Distribution distribution = Distribution().with(mesh.tensor(), sharded(dim));
      const int64_t half = (dim == 0 ? kMatrixRows : kMatrixColumns) / 2;
      const Value piece = builder.input(
          "matrix",
          {Shape{kMatrixRows, kMatrixColumns}.with_dim(dim, half), DType::f64, distribution});
      const Value update = newton_schulz(builder, {{piece}}, 5, NewtonSchulzPieces::blocks).front();
      const MeasuredUpdate measured[] = {{update, 0.7}};
      const Value measures = muon_measures(builder, measured, NewtonSchulzPieces::blocks);
      EXPECT_EQ(builder.spec(measures).distribution.on(mesh.tensor()), partial());
      builder.name_as(update, "update");
      builder.name_as(measures, "measures");
      builder.output(update);
      builder.output(measures);
    };
    const MeshRun run(mesh, write, testing::give_parts(mesh, {{"matrix", whole}}));
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Distribution distribution = Distribution().with(mesh.tensor(), sharded(dim));
      const auto expected =
          results_of_one_rank(testing::part_of_rank(mesh, distribution, whole, rank));
      EXPECT_EQ(testing::as_doubles(run.value(rank, "update")), expected[0]);
      EXPECT_EQ(testing::as_doubles(run.value(rank, "measures")), expected[1]);
    }
  }
}

/// Labels refuse a matrix of which a rank has a piece only.
TEST(NewtonSchulz, RefusesPiecesOfMatricesButNotOfExperts) {
  const Mesh mesh({.tensor = 2});
  Program program(mesh, 0);
  Builder builder(program);
  const auto declare = [&](int dim) {
    return builder.input(fmt::format("split{}", dim),
                         {{4, 6, 8}, DType::f64, Distribution().with(mesh.tensor(), sharded(dim))});
  };
  EXPECT_THROW(newton_schulz(builder, {{declare(1)}}, 5), DistributionError);
  EXPECT_THROW(newton_schulz(builder, {{declare(2)}}, 5), DistributionError);
  const Value experts = newton_schulz(builder, {{declare(0)}}, 5).front();
  EXPECT_EQ(builder.spec(experts).distribution.on(mesh.tensor()), sharded(0));
}

}  // namespace
}  // namespace tessera
