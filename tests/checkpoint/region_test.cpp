// Boxes and pieces of tensors, compared with an enumeration of their elements.
#include "checkpoint/region.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed, "regions") {}
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_.bits(number_++) % static_cast<uint64_t>(count));
  }

 private:
  CounterRandom random_;
  uint64_t number_ = 0;
};

/// Runs of some elements of a dim, in any order, that do not overlap.
std::vector<ElementRun> some_runs(Draw& draw, int64_t extent) {
  std::vector<ElementRun> runs;
  for (int64_t at = 0; at < extent;) {
    const int64_t length = 1 + draw.below(extent - at);
    if (draw.below(6) > 0) runs.push_back({at, length});
    at += length;
  }
  for (size_t i = runs.size(); i > 1; --i) {
    std::swap(runs[i - 1], runs[static_cast<size_t>(draw.below(static_cast<int64_t>(i)))]);
  }
  return runs;
}

/// The elements of the whole that a piece has, in its order.
std::vector<int64_t> elements_of(const TensorPiece& piece) {
  const Shape& whole = piece.whole();
  std::vector<int64_t> places{0};
  for (int dim = 0; dim < whole.rank(); ++dim) {
    std::vector<int64_t> next;
    for (const int64_t place : places) {
      for (const ElementRun& run : piece.runs(dim)) {
        for (int64_t i = 0; i < run.length; ++i) next.push_back(place * whole[dim] + run.begin + i);
      }
    }
    places = std::move(next);
  }
  return places;
}

TensorPiece some_piece(Draw& draw, const Shape& whole) {
  std::vector<std::vector<ElementRun>> runs;
  for (const int64_t extent : whole.dims()) runs.push_back(some_runs(draw, extent));
  return {whole, runs};
}

Region some_box(Draw& draw, const Shape& whole) {
  Region box;
  for (const int64_t extent : whole.dims()) {
    const int64_t begin = draw.below(extent);
    box.dims.push_back({begin, 1 + draw.below(extent - begin)});
    if (draw.below(3) == 0) box.dims.back() = {0, extent};
  }
  return box;
}

Shape some_shape(Draw& draw) {
  std::vector<int64_t> dims(static_cast<size_t>(1 + draw.below(4)));
  if (draw.below(20) == 0) dims.clear();
  for (int64_t& dim : dims) dim = 1 + draw.below(6);
  return Shape(dims);
}

TEST(CommonElements, FindsEachCommonElementOnceInTheOrderOfTheBox) {
  Draw draw(1);
  int64_t common = 0;
  for (int round = 0; round < 3000; ++round) {
    const Shape whole = some_shape(draw);
    const Region box = some_box(draw, whole);
    const TensorPiece piece = some_piece(draw, whole);
    const std::vector<int64_t> of_box = elements_of(box.piece_of(whole));
    const std::vector<int64_t> of_piece = elements_of(piece);
    std::map<int64_t, int64_t> place_in_piece;
    for (size_t i = 0; i < of_piece.size(); ++i) {
      place_in_piece[of_piece[i]] = static_cast<int64_t>(i);
    }
    const bool all = round % 2 == 0;
    const int64_t begin = all ? 0 : draw.below(box.elements() + 1);
    const int64_t end = all ? box.elements() : begin + draw.below(box.elements() - begin + 1);
    std::vector<std::pair<int64_t, int64_t>> expected;
    for (int64_t i = begin; i < end; ++i) {
      const auto found = place_in_piece.find(of_box[static_cast<size_t>(i)]);
      if (found != place_in_piece.end()) expected.emplace_back(i, found->second);
    }
    std::vector<std::pair<int64_t, int64_t>> found;
    visit_common(box, piece, begin, end, [&](int64_t in_box, int64_t in_piece, int64_t count) {
      for (int64_t i = 0; i < count; ++i) found.emplace_back(in_box + i, in_piece + i);
    });
    ASSERT_EQ(found, expected) << whole.text() << " " << box.text();
    ASSERT_EQ(any_common(box, piece, begin, end), !expected.empty());
    common += std::ssize(expected);
  }
  EXPECT_GT(common, 10000) << "the cases are too empty to show anything";
}

TEST(CommonElements, VisitsWhatLiesTogetherInBothAtOnce) {
  int visits = 0;
  const TensorPiece whole({4, 6, 5});
  visit_common(Region::whole_of({4, 6, 5}), whole, 0, 120, [&](int64_t, int64_t, int64_t count) {
    ++visits;
    EXPECT_EQ(count, 120);
  });
  const Region rows{{{1, 2}, {0, 6}, {0, 5}}};
  visit_common(rows, whole, 0, 60, [&](int64_t in_box, int64_t in_piece, int64_t count) {
    ++visits;
    EXPECT_EQ(in_piece - in_box, 30);
    EXPECT_EQ(count, 60);
  });
  EXPECT_EQ(visits, 2);
}

TEST(Region, BoxesOfAPieceHaveItsElements) {
  Draw draw(2);
  for (int round = 0; round < 300; ++round) {
    const Shape whole = some_shape(draw);
    const TensorPiece piece = some_piece(draw, whole);
    std::vector<int64_t> of_boxes;
    for (const Region& box : regions_of(piece)) {
      const std::vector<int64_t> elements = elements_of(box.piece_of(whole));
      of_boxes.insert(of_boxes.end(), elements.begin(), elements.end());
    }
    std::vector<int64_t> of_piece = elements_of(piece);
    std::ranges::sort(of_boxes);
    std::ranges::sort(of_piece);
    EXPECT_EQ(of_boxes, of_piece);
  }
}

TEST(Region, AreCheckedToCoverEachElementOnce) {
  Draw draw(3);
  int covered = 0;
  for (int round = 0; round < 3000; ++round) {
    const Shape whole = some_shape(draw);
    std::vector<Region> regions;
    if (round % 2 == 0) {  // a cut in two along a dim, with a fault or without
      Region first = Region::whole_of(whole);
      if (whole.rank() > 0) {
        const auto dim = static_cast<size_t>(draw.below(whole.rank()));
        Region second = first;
        const int64_t at = draw.below(first.dims[dim].length + 1);
        second.dims[dim] = {at, first.dims[dim].length - at};
        first.dims[dim].length = at;
        regions.push_back(second);
      }
      regions.push_back(first);
    } else {
      for (int64_t i = draw.below(4); i >= 0; --i) regions.push_back(some_box(draw, whole));
    }
    std::vector<int> times(static_cast<size_t>(whole.elements()));
    for (const Region& region : regions) {
      for (const int64_t element : elements_of(region.piece_of(whole))) {
        ++times[static_cast<size_t>(element)];
      }
    }
    const bool once = std::ranges::all_of(times, [](int count) { return count == 1; });
    covered += once ? 1 : 0;
    ASSERT_EQ(cover_problem(whole, regions).empty(), once) << whole.text();
  }
  EXPECT_GT(covered, 1000);
  EXPECT_LT(covered, 2500);
}

TEST(Region, SaysWhatIsWrong) {
  const Shape whole{4, 6};
  EXPECT_THAT(cover_problem(whole, std::vector{Region{{{0, 4}}}}), HasSubstr("is not of [4, 6]"));
  EXPECT_THAT(cover_problem(whole, std::vector{Region{{{1, 4}, {0, 6}}}}),
              HasSubstr("[1:5, 0:6] is not within [4, 6]"));
  EXPECT_THAT(cover_problem(whole, {}), HasSubstr("fewer elements of [4, 6]"));
  EXPECT_EQ((Region{{{1, 2}, {0, 6}}}).text(), "[1:3, 0:6]");
}

TEST(TensorPiece, SaysItsRuns) {
  const Mesh mesh(MeshSizes{.tensor = 2});
  const Distribution even = Distribution(MeshView::dense).with(mesh.tensor(), sharded(1, {}, 0, 2));
  const TensorPiece piece(mesh, even, {3, 8}, 1);
  EXPECT_THAT(piece.runs(0), ElementsAre(ElementRun{0, 3}));
  EXPECT_THAT(piece.runs(1), ElementsAre(ElementRun{2, 2}, ElementRun{6, 2}));
  EXPECT_THAT(TensorPiece({2, 5}).runs(1), ElementsAre(ElementRun{0, 5}));
  std::vector<int64_t> places(static_cast<size_t>(piece.shape().elements()));
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = piece.element_of_whole(static_cast<int64_t>(i));
  }
  EXPECT_EQ(elements_of(piece), places);
}

}  // namespace
}  // namespace tessera
