// A rank that goes another way at run time, after the lists of calls were found to be equal.
#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/wait_time.h"
#include "mpi/joined.h"
#include "support/skipped_action.h"

namespace tessera {
namespace {

TEST(SkippedActionOfProcesses, EndsTheTrainingWithBothCalls) {
  const Mesh mesh({.tensor = 2, .data = {joined().ranks() / 2}});
  RankGroups groups(mesh, joined().rank(), [](std::span<const int> ranks, std::string_view lane) {
    const bool controls = lane == kControlLane;
    return joined().group(ranks, controls ? std::string(lane) : fmt::format("skip {}", lane));
  });
  const RankControl control(groups);
  const std::string error = testing::train_with_skipped_update(groups, control, [&] {
    joined().set_timeout(std::chrono::milliseconds(groups.rank() == 0 ? 300 : 800));
  });
  joined().set_timeout(kRankTimeout);
  testing::expect_both_calls(groups.rank(), error);
  if (groups.rank() == 0) {
    EXPECT_THAT(error, ::testing::HasSubstr("(on " + joined().hosts()[1] + ")"));
  }
  control.wait();
}

}  // namespace
}  // namespace tessera
