#include "train/save_shares.h"

#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tensor_piece.h"

namespace tessera {
namespace {

/// A mesh and tensors that lie over it in the ways in which parameters do.
struct Model {
  Mesh mesh;
  std::vector<Distribution> distributions;
  std::vector<Shape> shapes;

  explicit Model(const MeshSizes& sizes) : mesh(sizes) {
    const Distribution dense(MeshView::dense);
    const Distribution experts = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
    for (int layer = 0; layer < 4; ++layer) {
      add(dense.with(mesh.tensor(), sharded(0)), {48, 40});
      add(dense.with(mesh.tensor(), sharded(1, {}, 0, 2)), {40, 64});
      add(dense, {40});
      add(experts, {8, 24, 40});
    }
    add(dense, {1000, 40});  // more than any rank's share
  }
  void add(const Distribution& distribution, const Shape& shape) {
    distributions.push_back(distribution);
    shapes.push_back(shape);
  }
  std::vector<TensorOnRanks> tensors() const {
    std::vector<TensorOnRanks> tensors;
    for (size_t i = 0; i < shapes.size(); ++i) {
      tensors.push_back({distributions[i], 4, [this, i](int rank) {
                           return std::vector{TensorPiece(mesh, distributions[i], shapes[i], rank)};
                         }});
    }
    return tensors;
  }
};

const std::vector<MeshSizes> kMeshes{{},
                                     {.tensor = 2},
                                     {.data = {3}},
                                     {.tensor = 2, .data = {4}, .expert = 4},
                                     {.context = 2, .data = {2, 2}, .expert = 2},
                                     {.tensor = 4, .context = 2, .data = {2}, .expert = 8}};

TEST(SaveShares, CoverEachTensorOnceWithWhatTheRanksHold) {
  for (const MeshSizes& sizes : kMeshes) {
    const Model model(sizes);
    SCOPED_TRACE(model.mesh.text());
    for (const int64_t least_cut : {int64_t{256}, kLeastCut}) {
      std::vector<std::vector<Region>> all(model.shapes.size());
      for (int rank = 0; rank < model.mesh.ranks(); ++rank) {
        const auto own = save_shares(model.mesh, rank, model.tensors(), least_cut);
        ASSERT_EQ(own.size(), model.shapes.size());
        for (size_t i = 0; i < own.size(); ++i) {
          const TensorPiece piece(model.mesh, model.distributions[i], model.shapes[i], rank);
          std::set<int64_t> held;
          for (int64_t e = 0; e < piece.shape().elements(); ++e) {
            held.insert(piece.element_of_whole(e));
          }
          for (const Region& region : own[i]) {
            all[i].push_back(region);
            const Shape shape = region.shape();
            for (int64_t e = 0; e < shape.elements(); ++e) {
              int64_t rest = e, place = 0, stride = 1;
              for (int dim = shape.rank() - 1; dim >= 0; --dim) {
                place += stride * (region.dims[static_cast<size_t>(dim)].place + rest % shape[dim]);
                stride *= model.shapes[i][dim];
                rest /= shape[dim];
              }
              ASSERT_TRUE(held.contains(place)) << "rank " << rank << " saves what it has not";
            }
          }
        }
      }
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(cover_problem(model.shapes[i], all[i]), "") << model.shapes[i].text();
      }
    }
  }
}

TEST(SaveShares, AreNearlyEqualWhereRanksHoldTheSame) {
  for (const MeshSizes& sizes : kMeshes) {
    const Model model(sizes);
    SCOPED_TRACE(model.mesh.text());
    std::vector<int64_t> loads;
    for (int rank = 0; rank < model.mesh.ranks(); ++rank) {
      int64_t elements = 0;
      for (const auto& of_tensor : save_shares(model.mesh, rank, model.tensors(), 256)) {
        for (const Region& region : of_tensor) elements += region.elements();
      }
      loads.push_back(elements);
    }
    const int64_t all = std::accumulate(loads.begin(), loads.end(), int64_t{0});
    const double even = static_cast<double>(all) / model.mesh.ranks();
    EXPECT_LE(static_cast<double>(*std::ranges::max_element(loads)), 1.1 * even);
    EXPECT_GE(static_cast<double>(*std::ranges::min_element(loads)), 0.9 * even);
  }
}

TEST(SaveShares, KeepSmallPiecesWhole) {
  const Model model(MeshSizes{.data = {4}});
  size_t regions = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto& of_tensor : save_shares(model.mesh, rank, model.tensors())) {
      regions += of_tensor.size();
    }
  }
  EXPECT_EQ(regions, model.shapes.size());
}

}  // namespace
}  // namespace tessera
