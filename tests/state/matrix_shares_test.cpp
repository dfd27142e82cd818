#include "state/matrix_shares.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/shared_states.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

/// The least that the rank with the most work can have, by trying all ways.
double least_maximum(std::span<const SharedWork> shared, std::vector<double> work) {
  if (shared.empty()) return *std::ranges::max_element(work);
  double least = 1e300;
  for (const int rank : shared[0].ranks) {
    std::vector<double> tried = work;
    tried[static_cast<size_t>(rank)] += shared[0].work;
    least = std::min(least, least_maximum(shared.subspan(1), tried));
  }
  return least;
}

RC_GTEST_PROP(EvenOut, GivesTheRankWithTheMostWorkAsLittleAsCanBe, ()) {
  const int ranks = *rc::gen::inRange(2, 8);
  std::vector<double> work;
  for (int rank = 0; rank < ranks; ++rank) work.push_back(*rc::gen::inRange(0, 50));
  std::vector<SharedWork> shared;
  for (int first = 0; first + 1 < ranks;) {
    const int last = *rc::gen::inRange(first + 1, std::min(first + 4, ranks));
    if (*rc::gen::inRange(0, 4) > 0) {
      std::vector<int> holders{first};
      for (int rank = first + 1; rank < last; ++rank) {
        if (*rc::gen::arbitrary<bool>()) holders.push_back(rank);
      }
      holders.push_back(last);
      shared.push_back({holders, static_cast<double>(*rc::gen::inRange(1, 40))});
    }
    first = last;
  }
  const double least = least_maximum(shared, work);
  std::vector<double> summed = work;
  const std::vector<int> owners = assign_evenly(shared, work);
  RC_ASSERT(owners.size() == shared.size());
  for (size_t i = 0; i < shared.size(); ++i) {
    RC_ASSERT(std::ranges::count(shared[i].ranks, owners[i]) == 1);
    summed[static_cast<size_t>(owners[i])] += shared[i].work;
  }
  RC_ASSERT(summed == work);
  RC_ASSERT(*std::ranges::max_element(work) <= least * (1 + 1e-9));
}

/// Matrices of three sizes in units of several layers, of experts as well.
ParameterList matrices_on(const MeshRank& mesh_rank) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder(program);
  const Mesh& mesh = mesh_rank.mesh;
  ParameterList list;
  for (int layer = 0; layer < 3; ++layer) {
    const auto declare = [&](const char* name, const Shape& shape, const Distribution& lies,
                             ParameterRole role) {
      const char* const unit = role == ParameterRole::expert ? ".experts" : "";
      list.declare(builder, fmt::format("layers.{}.{}", layer, name), shape, lies, DType::f32, role,
                   {}, fmt::format("layers.{}{}", layer, unit));
    };
    const Distribution experts = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
    declare("query", {96, 128}, Distribution().with(mesh.tensor(), sharded(0)),
            ParameterRole::matrix);
    declare("down", {128, 100}, Distribution().with(mesh.tensor(), sharded(1)),
            ParameterRole::matrix);
    declare("router", {8, 128}, {}, ParameterRole::router);
    declare("norm", {128}, {}, ParameterRole::norm);
    declare("gate", {8, 40, 128}, experts, ParameterRole::expert);
  }
  return list;
}

std::vector<size_t> matrices_of(const ParameterList& list) {
  std::vector<size_t> result;
  for (size_t i = 0; i < list.specs().size(); ++i) {
    if (is_hidden_matrix(list.specs()[i].role, list.specs()[i].shape)) result.push_back(i);
  }
  return result;
}

/// Each matrix is orthogonalised once among the ranks that share it: it is whole on one rank, or
/// goes to one of those that have pieces, which together are all of it.
TEST(MatrixShares, EachMatrixHasOneOwner) {
  for (const MeshSizes& sizes :
       {MeshSizes{.data = {5}}, MeshSizes{.data = {8}}, MeshSizes{.tensor = 2, .data = {4}},
        MeshSizes{.tensor = 2, .data = {2, 3}, .expert = 2}}) {
    const Mesh mesh(sizes);
    SCOPED_TRACE(mesh.text());
    bool some_cut = false;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const ParameterList list = matrices_on({mesh, rank});
      const StateShard shard({mesh, rank}, list, {testing::states_over_all(mesh), true});
      const std::vector<size_t> own = matrices_of(list);
      std::map<std::pair<size_t, int64_t>, int> owners;  // those of all ranks that share with this
      for (const MatrixChain& chain : matrix_chains(shard, list.specs(), own)) {
        EXPECT_EQ(chain.ranks[static_cast<size_t>(chain.position)], rank);
        for (const MatrixChain::Cut& cut : chain.cuts) {
          some_cut = true;
          ++owners[{cut.parameter, cut.matrix}];
          const Shape& shape = list.specs()[cut.parameter].piece_shape;
          int64_t next = 0;
          for (const ElementRun& piece : cut.pieces) {
            if (piece.length == 0) continue;
            EXPECT_EQ(piece.begin, next);
            next += piece.length;
          }
          EXPECT_EQ(next, shape.dim(-2) * shape.dim(-1));
          EXPECT_GT(cut.pieces[static_cast<size_t>(cut.owner)].length, 0);
        }
        for (const int other : chain.ranks) {
          for (const MatrixChain& of_other :
               matrix_chains(shard.of_rank(other), list.specs(), own)) {
            if (of_other.first_parameter != chain.first_parameter) continue;
            ASSERT_EQ(of_other.cuts.size(), chain.cuts.size());
            for (size_t i = 0; i < chain.cuts.size(); ++i) {
              EXPECT_EQ(of_other.cuts[i].owner, chain.cuts[i].owner);
            }
            for (const MatrixChain::Run& run : of_other.runs) {
              for (int64_t i = 0; i < run.count; ++i)
                ++owners[{run.parameter, run.first_matrix + i}];
            }
          }
        }
      }
      for (const size_t parameter : own) {
        const Shape& shape = list.specs()[parameter].piece_shape;
        for (int64_t i = 0; i < (shape.rank() == 3 ? shape[0] : 1); ++i) {
          EXPECT_EQ((owners[{parameter, i}]), 1) << list.specs()[parameter].name << ", " << i;
        }
      }
    }
    EXPECT_TRUE(some_cut);
  }
}

/// The same with more ranks than grains, where ranks have empty pieces between those of one matrix.
RC_GTEST_PROP(MatrixShares, AnOwnerHasAPieceOnAnyNumberOfRanks, ()) {
  std::vector<Shape> shapes;
  for (int layers = *rc::gen::inRange(1, 9); layers > 0; --layers) {
    const int64_t most = *rc::gen::element<int64_t>(20, 300);
    shapes.push_back({*rc::gen::inRange<int64_t>(1, most), *rc::gen::inRange<int64_t>(1, most)});
  }
  for (int ranks = *rc::gen::inRange(2, 5); ranks < 64; ranks += 3) {
    const Mesh mesh(MeshSizes{.data = {ranks}});
    Program program(mesh, 0);
    Builder builder(program);
    ParameterList list;
    for (size_t i = 0; i < shapes.size(); ++i) {
      list.declare(builder, fmt::format("layers.{}.query", i), shapes[i], {}, DType::f32,
                   ParameterRole::matrix, {}, fmt::format("layers.{}", i));
    }
    const StateShard shard({mesh, 0}, list, {testing::states_over_all(mesh), true});
    std::vector<int> cut(shapes.size());
    for (const MatrixChain& chain : matrix_chains(shard, list.specs(), matrices_of(list))) {
      for (const MatrixChain::Cut& of_matrix : chain.cuts) {
        RC_ASSERT(of_matrix.pieces[static_cast<size_t>(of_matrix.owner)].length > 0);
        RC_ASSERT(++cut[of_matrix.parameter] == 1);
      }
    }
  }
}

/// The memory is one piece: each cut goes through one matrix at most, and a rank has at most two
/// that are cut.
TEST(MatrixShares, ARankHasPiecesOfTwoMatricesAtMost) {
  for (const int ranks : {2, 3, 4, 8}) {
    const Mesh mesh(MeshSizes{.data = {ranks}});
    const ParameterList list = matrices_on({mesh, 0});
    const StateShard shard({mesh, 0}, list, {testing::states_over_all(mesh), true});
    for (const MatrixChain& chain : matrix_chains(shard, list.specs(), matrices_of(list))) {
      EXPECT_LT(std::ssize(chain.cuts), ranks);
      std::vector<int> pieces(static_cast<size_t>(ranks));
      for (const MatrixChain::Cut& cut : chain.cuts) {
        for (size_t i = 0; i < cut.pieces.size(); ++i) pieces[i] += cut.pieces[i].length > 0;
      }
      EXPECT_THAT(pieces, ::testing::Each(::testing::Le(2)));
    }
  }
}

/// Newton-Schulz's work is as even as matrices allow: no rank has more than its even part and one
/// matrix.
TEST(MatrixShares, WorkIsEven) {
  const Mesh mesh(MeshSizes{.data = {4}});
  const ParameterList list = matrices_on({mesh, 0});
  const StateShard shard({mesh, 0}, list, {testing::states_over_all(mesh), true});
  for (const MatrixChain& chain : matrix_chains(shard, list.specs(), matrices_of(list))) {
    if (list.specs()[chain.first_parameter].role == ParameterRole::router)
      continue;  // three small ones
    const double total = std::accumulate(chain.work.begin(), chain.work.end(), 0.0);
    const double largest = 3.0 * 100 * 100 * 128 + 100.0 * 100 * 100;
    EXPECT_LE(*std::ranges::max_element(chain.work), total / 4 + largest);
    EXPECT_GT(*std::ranges::min_element(chain.work), 0);
  }
}

/// Ranks that have uneven pieces of the same matrices must not cut different ones.
TEST(MatrixShares, UnevenPiecesAreCutBetweenMatricesAlone) {
  const Mesh mesh(MeshSizes{.tensor = 3, .data = {2}});
  std::vector<std::vector<int64_t>> counts;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    Program program(mesh, rank);
    Builder builder(program);
    ParameterList list;
    for (int layer = 0; layer < 5; ++layer) {
      list.declare(builder, fmt::format("layers.{}.gate", layer), {200, 64},
                   Distribution().with(mesh.tensor(), sharded(0, nearly_even(200, 3))), DType::f32,
                   ParameterRole::matrix, {}, fmt::format("layers.{}", layer));
    }
    const StateShard shard({mesh, rank}, list, {testing::states_over_all(mesh), true});
    const auto chains = matrix_chains(shard, list.specs(), matrices_of(list));
    ASSERT_EQ(chains.size(), 1U);
    EXPECT_TRUE(chains[0].cuts.empty());
    for (const MatrixChain::Run& run : chains[0].runs) counts.push_back(run.counts);
  }
  ASSERT_EQ(counts.size(), 3U * 5);
  for (const auto& of_run : counts) {
    EXPECT_EQ(std::accumulate(of_run.begin(), of_run.end(), int64_t{0}), 1);
  }
}

}  // namespace
}  // namespace tessera
