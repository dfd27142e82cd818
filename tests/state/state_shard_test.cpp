#include "state/state_shard.h"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/round_up.h"
#include "support/shared_states.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

/// Parameters of these sizes as a unit has them, and the unit's elements.
std::pair<std::vector<ElementRun>, int64_t> unit_of(const std::vector<int64_t>& sizes) {
  std::vector<ElementRun> runs;
  int64_t elements = 0;
  for (const int64_t size : sizes) {
    runs.push_back({elements, size});
    elements += round_up(size, kAlignment);
  }
  return {runs, elements};
}

TEST(CutEvenly, CutsAtMultiplesOfTheGrainAndBetweenParameters) {
  const auto [runs, elements] = unit_of({1000, 30, 500});  // at 0, 1024 and 1088, of 1600
  EXPECT_THAT(cut_evenly(runs, elements, 1, 100), ElementsAre(1600));
  EXPECT_THAT(cut_evenly(runs, elements, 2, 100), ElementsAre(800, 800));
  EXPECT_THAT(cut_evenly(runs, elements, 4, 100), ElementsAre(400, 400, 388, 412));
  EXPECT_THAT(cut_evenly(runs, elements, 2, 4096), ElementsAre(1024, 576)) << "whole parameters";
  EXPECT_THAT(cut_evenly(runs, elements, 4, 4096), ElementsAre(0, 1024, 64, 512));
}

RC_GTEST_PROP(CutEvenly, CoversTheUnitWithNearlyEqualPieces, ()) {
  const auto sizes = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 9000)));
  const auto [runs, elements] = unit_of(sizes);
  const int ranks = *rc::gen::inRange(1, 80);
  const int64_t grain = *rc::gen::element<int64_t>(64, 512, 4096);
  const std::vector<int64_t> cuts = cut_evenly(runs, elements, ranks, grain);
  RC_ASSERT(std::ssize(cuts) == ranks);
  RC_ASSERT(std::accumulate(cuts.begin(), cuts.end(), int64_t{0}) == elements);
  int64_t begin = 0;
  for (const int64_t size : cuts) {
    RC_ASSERT(size >= 0);
    RC_ASSERT(std::abs(size - elements / ranks) <= grain + kAlignment);
    const auto after = std::ranges::upper_bound(runs, begin, {}, &ElementRun::begin);
    const int64_t within = begin - (after - 1)->begin;
    RC_ASSERT(begin == elements || within % grain == 0);
    begin += size;
  }
}

RC_GTEST_PROP(BoxesOfRun, AreTheRunElementByElement, ()) {
  const auto dims = *rc::gen::nonEmpty(rc::gen::resize(
      4, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 6))));
  const Shape shape{std::span<const int64_t>(dims)};
  const int64_t begin = *rc::gen::inRange<int64_t>(0, shape.elements());
  const int64_t length = *rc::gen::inRange<int64_t>(0, shape.elements() - begin + 1);
  int64_t next = begin;
  const auto boxes = boxes_of_run(shape, {begin, length});
  RC_ASSERT(std::ssize(boxes) <= 2 * shape.rank() - 1);
  for (const auto& box : boxes) {
    RC_ASSERT(std::ssize(box) == shape.rank());
    const TensorPiece piece = TensorPiece(shape).part(box);
    for (int64_t i = 0; i < piece.shape().elements(); ++i) {
      RC_ASSERT(piece.element_of_whole(i) == next++);
    }
  }
  RC_ASSERT(next == begin + length);
}

/// Parameters of two units, of which ranks of the tensor axis have uneven pieces, and experts.
ParameterList parameters_on(const MeshRank& mesh_rank) {
  Program program(mesh_rank.mesh, mesh_rank.rank);
  Builder builder(program);
  const Mesh& mesh = mesh_rank.mesh;
  ParameterList list;
  const auto declare = [&](const char* name, const Shape& shape, const Distribution& lies) {
    list.declare(builder, name, shape, lies, DType::f32, ParameterRole::matrix, {},
                 lies.view() == MeshView::dense ? "dense" : "experts");
  };
  const Pieces uneven = nearly_even(261, mesh.size(mesh.tensor()));
  declare("table", {261, 48}, Distribution().with(mesh.tensor(), sharded(0, uneven)));
  declare("inner", {100, 52}, Distribution().with(mesh.tensor(), sharded(1)));
  declare("norm", {48}, Distribution());
  declare("experts", {4, 40, 70}, Distribution(MeshView::expert).with(mesh.expert(), sharded(0)));
  return list;
}

TEST(StateShard, ShareEachElementOutOnce) {
  for (const bool whole_matrices : {false, true})
    for (const MeshSizes& sizes : {MeshSizes{.data = {37}}, MeshSizes{.tensor = 2, .data = {4}},
                                   MeshSizes{.tensor = 2, .data = {2, 3}, .expert = 2},
                                   MeshSizes{.context = 2, .data = {2, 2}, .expert = 4}}) {
      const Mesh mesh(sizes);
      SCOPED_TRACE(mesh.text());
      const ParameterList list = parameters_on({mesh, 0});
      const StateShard first({mesh, 0}, list, {testing::states_over_all(mesh), whole_matrices});
      for (size_t parameter = 0; parameter < list.specs().size(); ++parameter) {
        const ParameterSpec& spec = list.specs()[parameter];
        // By the axes on which copies are: every element is once among the ranks of one place
        // there.
        std::map<std::vector<int>, std::vector<int>> copies;
        const Distribution lies = first.distribution(parameter, Kept::master);
        for (int rank = 0; rank < mesh.ranks(); ++rank) {
          std::vector<int> place;
          for (const Axis axis : mesh.axes_of(lies.view())) {
            if (lies.on(axis).same_on_ranks()) place.push_back(mesh.coordinate(rank, axis));
          }
          std::vector<int>& counts = copies[place];
          counts.resize(static_cast<size_t>(spec.shape.elements()));
          int64_t held = 0;
          const StateShard shard = first.of_rank(rank);
          for (const TensorPiece& piece : shard.pieces(parameter, Kept::master)) {
            for (int64_t i = 0; i < piece.shape().elements(); ++i, ++held) {
              ++counts[static_cast<size_t>(piece.element_of_whole(i))];
            }
          }
          EXPECT_EQ(held, shard.held(parameter).length);
          const std::vector<int> sharers = shard.sharers(parameter);
          const auto position = std::ranges::find(sharers, rank) - sharers.begin();
          EXPECT_EQ(shard.held(parameter),
                    shard.held_by_sharers(parameter)[static_cast<size_t>(position)]);
        }
        for (const auto& [place, counts] : copies) EXPECT_THAT(counts, ::testing::Each(1));
      }
    }
}

TEST(StateShard, AreWhatARankHoldsIfNothingIsCut) {
  const Mesh mesh(MeshSizes{.tensor = 2, .data = {2}});
  const ParameterList list = parameters_on({mesh, 3});
  const StateShard shard({mesh, 3}, list, {});
  for (size_t i = 0; i < list.specs().size(); ++i) {
    EXPECT_EQ(shard.held(i), (ElementRun{0, list.specs()[i].piece_shape.elements()}));
    EXPECT_EQ(shard.distribution(i, Kept::first_moment),
              list.units()[static_cast<size_t>(list.specs()[i].unit_index)].distribution);
    EXPECT_EQ(
        shard.pieces(i, Kept::master),
        std::vector{TensorPiece(mesh, list.specs()[i].distribution, list.specs()[i].shape, 3)});
  }
  EXPECT_FALSE(shard.cut(0).is_cut());
}

TEST(RankShards, AreThoseThatEachRankMakes) {
  const Mesh mesh(MeshSizes{.tensor = 2, .data = {2, 3}, .expert = 2});
  const ParameterList list = parameters_on({mesh, 0});
  const StateSharing sharing{testing::states_over_all(mesh), true};
  RankShards shards(StateShard({mesh, 5}, list, sharing));
  for (int rank = mesh.ranks() - 1; rank >= 0; --rank) {
    const StateShard alone({mesh, rank}, list, sharing);
    const StateShard& shared = shards.shard_of(rank);
    EXPECT_EQ(shared.rank(), rank);
    for (size_t i = 0; i < list.specs().size(); ++i) {
      EXPECT_EQ(shared.held(i), alone.held(i));
      EXPECT_EQ(shared.pieces(i, Kept::master), alone.pieces(i, Kept::master));
      EXPECT_EQ(shared.pieces(i, Kept::weight), alone.pieces(i, Kept::weight));
      EXPECT_EQ(shared.offset_in(i, Kept::master), alone.offset_in(i, Kept::master));
    }
  }
  // Ranks whose coordinates differ on the data axis alone share what was computed.
  EXPECT_EQ(&shards.shard_of(0).cut(0), &shards.shard_of(2).cut(0));
  EXPECT_NE(&shards.shard_of(0).cut(0), &shards.shard_of(1).cut(0));
}

}  // namespace
}  // namespace tessera
