// Lanes of processes, whose calls are delayed at random.
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/executor.h"
#include "engine/random_lanes.h"
#include "engine/random_lanes_run.h"
#include "mpi/joined.h"
#include "ops/host_target.h"
#include "support/rounds.h"

namespace tessera {
namespace {

/// TESSERA_ROUNDS=1000 in the environment makes a thousand programs.
TEST(RandomLanesOfProcesses, HaveTheBitsOfOneNodeAfterTheOther) {
  const Mesh mesh({.tensor = 2, .data = {joined().ranks() / 2}});
  RankGroups groups(mesh, joined().rank(),
                    testing::delayed_join(
                        joined().rank(), 3, [](std::span<const int> ranks, std::string_view lane) {
                          return joined().transport(ranks, fmt::format("random {}", lane));
                        }));
  Runtime runtime(host_target(1));
  runtime.join(groups);
  const int programs = testing::rounds(50);
  for (int i = 0; i < programs; ++i) {
    Program program(mesh, groups.rank());
    Builder builder(program);
    testing::RandomLanes(builder, {.seed = static_cast<uint64_t>(i), .sums = 5}).write();
    Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
    if (i == programs / 2) {  // the second half makes its calls without a comparison
      for (const Lane lane : {Lane::exchanges, Lane::reductions}) {
        for (const std::vector<Axis>& axes : testing::RandomNodes::groups(mesh)) {
          groups.over(axes, word(lane)).compare_calls(false);
        }
      }
    }
    testing::expect_bits_of_one_node_after_the_other(program, executor);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "program " << i;
  }
}

}  // namespace
}  // namespace tessera
