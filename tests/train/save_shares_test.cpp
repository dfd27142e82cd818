#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tensor_piece.h"
#include "support/shared_states.h"
#include "train/save_state.h"

namespace tessera {
namespace {

/// Weights of a rank that are distributed in the ways in which parameters are, in f32.
struct Model {
  Mesh mesh;
  std::vector<ParameterSpec> specs;

  explicit Model(const MeshSizes& sizes) : mesh(sizes), specs(parameters(0).specs()) {}

  ParameterList parameters(int rank) const {
    Program program(mesh, rank);
    Builder builder(program);
    ParameterList list;
    const auto declare = [&](const Shape& shape, const Distribution& distribution) {
      list.declare(builder, fmt::format("weight {}", list.specs().size()), shape, distribution,
                   DType::f32, ParameterRole::matrix, {},
                   distribution.view() == MeshView::dense ? "dense" : "experts");
    };
    const Distribution dense(MeshView::dense);
    const Distribution experts = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
    for (int layer = 0; layer < 4; ++layer) {
      declare({48, 40}, dense.with(mesh.tensor(), sharded(0)));
      declare({40, 64}, dense.with(mesh.tensor(), sharded(1, {}, 0, 2)));
      declare({40}, dense);
      declare({8, 24, 40}, experts);
    }
    declare({1000, 40}, dense);  // more than any rank's share
    return list;
  }
  std::vector<std::vector<Region>> shares(int rank, int64_t least_cut = kLeastCut) const {
    const ParameterList list = parameters(rank);
    const StateShard shard({mesh, rank}, list, {});
    std::vector<KeptTensor> tensors;
    std::vector<const KeptTensor*> all;
    for (size_t i = 0; i < list.specs().size(); ++i) {
      tensors.push_back({.parameter = &list.specs()[i],
                         .index = i,
                         .distribution = shard.distribution(i, Kept::weight)});
    }
    for (const KeptTensor& tensor : tensors) all.push_back(&tensor);
    return save_shares(all, shard, least_cut);
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
      std::vector<std::vector<Region>> all(model.specs.size());
      for (int rank = 0; rank < model.mesh.ranks(); ++rank) {
        const auto own = model.shares(rank, least_cut);
        ASSERT_EQ(own.size(), model.specs.size());
        for (size_t i = 0; i < own.size(); ++i) {
          const TensorPiece piece(model.mesh, model.specs[i].distribution, model.specs[i].shape,
                                  rank);
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
                place += stride * (region.dims[static_cast<size_t>(dim)].begin + rest % shape[dim]);
                stride *= model.specs[i].shape[dim];
                rest /= shape[dim];
              }
              ASSERT_TRUE(held.contains(place)) << "rank " << rank << " saves what it has not";
            }
          }
        }
      }
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(cover_problem(model.specs[i].shape, all[i]), "") << model.specs[i].shape.text();
      }
    }
  }
}

/// Declares parameters in even and uneven pieces, and experts.
ParameterList parameters_on(const MeshRank& mesh_rank) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder(program);
  const Mesh& mesh = mesh_rank.mesh;
  ParameterList list;
  const auto declare = [&](const char* name, const Shape& shape, const Distribution& distribution) {
    list.declare(builder, name, shape, distribution, DType::f32, ParameterRole::matrix, {},
                 distribution.view() == MeshView::dense ? "dense" : "experts");
  };
  const Pieces uneven = nearly_even(261, mesh.size(mesh.tensor()));
  declare("table", {261, 48}, Distribution().with(mesh.tensor(), sharded(0, uneven)));
  declare("inner", {100, 52}, Distribution().with(mesh.tensor(), sharded(1)));
  declare("norm", {48}, Distribution());
  declare("experts", {8, 40, 70}, Distribution(MeshView::expert).with(mesh.expert(), sharded(0)));
  return list;
}

/// With masters that ranks share out: each element of each is saved once, by a rank that has it.
TEST(SaveShares, CoverStatesThatAreSharedOut) {
  for (const MeshSizes& sizes : kMeshes) {
    for (const bool whole_matrices : {false, true}) {
      const Mesh mesh(sizes);
      SCOPED_TRACE(mesh.text());
      std::vector<std::vector<Region>> all(4);
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const ParameterList list = parameters_on({mesh, rank});
        const StateShard shard({mesh, rank}, list,
                               {testing::states_over_all(mesh), whole_matrices});
        std::vector<KeptTensor> masters;
        std::vector<const KeptTensor*> saved;
        for (size_t i = 0; i < all.size(); ++i) {
          masters.push_back({.parameter = &list.specs()[i],
                             .index = i,
                             .kind = Kept::master,
                             .distribution = shard.distribution(i, Kept::master),
                             .pieces = shard.pieces(i, Kept::master)});
        }
        for (const KeptTensor& master : masters) saved.push_back(&master);
        const auto own = save_shares(saved, shard, 256);
        for (size_t i = 0; i < all.size(); ++i) {
          for (const Region& region : own[i]) {
            all[i].push_back(region);
            int64_t held = 0;
            for (const TensorPiece& piece : masters[i].pieces) {
              visit_common(region, piece, 0, region.elements(),
                           [&](int64_t, int64_t, int64_t count) { held += count; });
            }
            EXPECT_EQ(held, region.elements()) << "rank " << rank << " saves what it has not";
          }
        }
      }
      const ParameterList list = parameters_on({mesh, 0});
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(cover_problem(list.specs()[i].shape, all[i]), "") << list.specs()[i].name;
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
      for (const auto& of_tensor : model.shares(rank, 256)) {
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
    for (const auto& of_tensor : model.shares(rank)) {
      regions += of_tensor.size();
    }
  }
  EXPECT_EQ(regions, model.specs.size());
}

}  // namespace
}  // namespace tessera
