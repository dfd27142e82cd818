#include "comm/distribution.h"

#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

Distribution any_distribution() {
  Distribution distribution;
  for (int axis = 0; axis < kAxisCount; ++axis) {
    const auto placement = *rc::gen::element(Placement::invariant, Placement::replicated,
                                             Placement::sharded, Placement::partial);
    distribution = distribution.with(static_cast<Axis>(axis), placement, *rc::gen::inRange(0, 4));
  }
  return distribution;
}

RC_GTEST_PROP(Distribution, TheDualOfTheDualIsTheTypeItself, ()) {
  const Distribution distribution = any_distribution();
  RC_ASSERT(distribution.dual().dual() == distribution);
}

RC_GTEST_PROP(Distribution, TheDualSwapsReplicatedAndPartialOnly, ()) {
  const Distribution distribution = any_distribution();
  for (int i = 0; i < kAxisCount; ++i) {
    const auto axis = static_cast<Axis>(i);
    const Placement before = distribution.placement(axis);
    const Placement after = distribution.dual().placement(axis);
    if (before == Placement::replicated) {
      RC_ASSERT(after == Placement::partial);
    } else if (before == Placement::partial) {
      RC_ASSERT(after == Placement::replicated);
    } else {
      RC_ASSERT(after == before);
      RC_ASSERT(distribution.dual().dim(axis) == distribution.dim(axis));
    }
  }
}

TEST(Distribution, SaysItsPlacements) {
  Distribution distribution;
  EXPECT_EQ(distribution.text(), "invariant");
  distribution = distribution.with(Axis::tensor, Placement::sharded, 1)
                     .with(Axis::data, Placement::partial)
                     .with(Axis::expert, Placement::replicated);
  EXPECT_EQ(distribution.text(), "tensor: sharded(1), data: partial, expert: replicated");
  EXPECT_EQ(distribution.dual().text(), "tensor: sharded(1), data: replicated, expert: partial");
}

TEST(Distribution, OnlyShardedAxesHaveADim) {
  const Distribution distribution;
  EXPECT_EQ(distribution.with(Axis::data, Placement::partial, 3),
            distribution.with(Axis::data, Placement::partial));
  EXPECT_NE(distribution.with(Axis::data, Placement::sharded, 1),
            distribution.with(Axis::data, Placement::sharded, 2));
}

TEST(Axis, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int axis = 0; axis < kAxisCount; ++axis) names.insert(word(static_cast<Axis>(axis)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kAxisCount));
  EXPECT_EQ(Mesh{}.size(Axis::expert_data), 1);
}

}  // namespace
}  // namespace tessera
