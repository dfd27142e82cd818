#include "support/skipped_action.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"

namespace tessera {
namespace {

TEST(SkippedAction, EndsTheTrainingOfThreadsWithBothCalls) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  World world(mesh.ranks());
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const RankControl control(groups);
    const std::string error = testing::train_with_skipped_update(groups, control, [&] {
      world.set_timeout(groups.rank(),
                        std::chrono::milliseconds(groups.rank() == 0 ? 300 : 20'000));
    });
    testing::expect_both_calls(groups.rank(), error);
  });
}

}  // namespace
}  // namespace tessera
