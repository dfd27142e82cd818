#include "ops/collective/shared_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "support/mesh_programs.h"
#include "support/refusal_of.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A matrix [rows, columns] of which the data ranks have pieces of these sizes.
SharedMatrix shared_matrix(const Mesh& mesh, int64_t rows, int64_t columns,
                           const std::vector<int64_t>& sizes, int owner) {
  const auto over_data = [&](int dim, std::vector<int64_t> of_ranks) {
    return Distribution().with(
        mesh.data()[0], sharded(dim, {.kind = PieceKind::flat, .sizes = std::move(of_ranks)}));
  };
  std::vector<int64_t> counts(sizes.size());
  counts[static_cast<size_t>(owner)] = 1;
  SharedMatrix matrix{.shape = {1, rows, columns},
                      .pieces = {},
                      .owner = owner,
                      .distribution = over_data(0, counts),
                      .piece_distribution = over_data(1, sizes)};
  int64_t next = 0;
  for (const int64_t size : sizes) {
    matrix.pieces.push_back({next, size});
    next += size;
  }
  return matrix;
}

/// What a rank knows: the matrices of which it has pieces.
MatrixSharing sharing_of(const Mesh& mesh, int rank) {
  MatrixSharing sharing{.name = "shared",
                        .axes = {mesh.data()[0]},
                        .ranks = {0, 1, 2, 3},
                        .position = rank,
                        .matrices = {}};
  for (const SharedMatrix& matrix : {shared_matrix(mesh, 6, 10, {5, 13, 20, 22}, 2),
                                     shared_matrix(mesh, 4, 4, {0, 0, 7, 9}, 3)}) {
    if (matrix.pieces[static_cast<size_t>(rank)].length > 0) sharing.matrices.push_back(matrix);
  }
  return sharing;
}

/// One matrix lies over four ranks, with its owner in the middle; one over two, the second of which
/// owns it. Owners get all of them, double them, and send the pieces back.
TEST(SharedMatrices, GoToTheirOwnersAndBack) {
  const Mesh mesh({.data = {4}});
  const Tensor wholes[] = {drawn({{1, 60}, DType::f64, {}}, "first"),
                           drawn({{1, 16}, DType::f64, {}}, "second")};
  const char* const names[] = {"first", "second"};
  const auto write = [&](Builder& builder) {
    const MatrixSharing sharing = sharing_of(mesh, builder.program().rank());
    std::vector<Value> pieces;
    for (size_t i = 0; i < sharing.matrices.size(); ++i) {
      const SharedMatrix& matrix = sharing.matrices[i];
      const int64_t own = matrix.pieces[static_cast<size_t>(sharing.position)].length;
      pieces.push_back(builder.state(names[i], {{1, own}, DType::f64, matrix.piece_distribution}));
    }
    const std::vector<Value> matrices = gather_at_owners(builder, sharing, pieces);
    std::vector<Value> doubled;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const bool owns = sharing.matrices[i].owner == sharing.position;
      EXPECT_EQ(bool{matrices[i]}, owns);
      if (!owns) continue;
      builder.name_as(matrices[i], fmt::format("whole {}", names[i]));
      builder.output(matrices[i]);
      doubled.push_back(scale(builder, matrices[i], 2));
    }
    return_to_pieces(builder, sharing, doubled, pieces);
  };
  const MeshRun run(mesh, write, give_parts(mesh, {{"first", wholes[0]}, {"second", wholes[1]}}));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const MatrixSharing sharing = sharing_of(mesh, rank);
    for (size_t i = 0; i < sharing.matrices.size(); ++i) {
      const SharedMatrix& matrix = sharing.matrices[i];
      if (matrix.owner == rank) {
        EXPECT_EQ(as_doubles(run.value(rank, fmt::format("whole {}", names[i]))),
                  as_doubles(wholes[i]));
      }
      const ElementRun& own = matrix.pieces[static_cast<size_t>(rank)];
      std::vector<double> expected = as_doubles(wholes[i].view(own.begin, {own.length}));
      for (double& number : expected) number *= 2;
      EXPECT_EQ(as_doubles(run.value(rank, names[i])), expected) << rank;
    }
  }
}

TEST(SharedMatrices, RefusePiecesThatLieOtherwise) {
  const Mesh mesh({.data = {4}});
  Program program(mesh, 0);
  Builder builder(program);
  const MatrixSharing sharing = sharing_of(mesh, 0);
  const Value other = builder.state("other", {{1, 5}, DType::f64, {}});
  EXPECT_THAT(refusal_of([&] { gather_at_owners(builder, sharing, {{other}}); }),
              AllOf(HasSubstr("gather_at_owners: 'piece 0' is invariant"),
                    HasSubstr("flat 5 + 13 + 20 + 22")));
}

}  // namespace
}  // namespace tessera::testing
