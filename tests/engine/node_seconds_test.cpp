#include <array>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/progress.h"
#include "comm/in_process/run_mesh.h"
#include "engine/compute_clock.h"
#include "engine/executor.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Action kWholeProgram{.segment = Segment::whole};

/// Gathers x over the tensor axis, and doubles what was gathered.
struct GatheredAndDoubled {
  explicit GatheredAndDoubled(const MeshRank& mesh_rank)
      : program(mesh_rank.mesh, mesh_rank.rank), builder(program) {
    const Axis tensor = mesh_rank.mesh.tensor();
    x = builder.input("x", {{1}, DType::f32, Distribution().with(tensor, sharded(0))});
    gathered = convert(builder, x, tensor, Placement::sharded, replicated());
    doubled = scale(builder, gathered, 2.0);
    builder.output(gathered);
    builder.output(doubled);
  }

  Program program;
  Builder builder;
  Value x, gathered, doubled;
};

std::vector<float> floats(const Tensor& tensor) {
  const std::span<const float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

/// The values that two ranks compute from 1 and 2, and the names of the nodes that took time.
struct Outcome {
  std::vector<float> gathered, doubled;
  std::vector<std::string> timed;
};

/// Returns the outcome on the second rank.
Outcome run_two_ranks(bool takes_time) {
  const Mesh mesh({.tensor = 2});
  World world(2);
  Outcome outcome;
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const GatheredAndDoubled written({mesh, groups.rank()});
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Executor executor({&written.program}, std::array{kWholeProgram}, runtime);
    std::vector<std::string> timed;
    if (takes_time) {
      executor.set_node_seconds([&](const Program&, const Node& node) {
        timed.emplace_back(node.operation->name());
        return 0.001;
      });
    }
    executor.tensor(written.x).data<float>()[0] = static_cast<float>(groups.rank() + 1);
    executor.run(kWholeProgram);
    if (groups.rank() == 0) return;
    outcome = {floats(executor.tensor(written.gathered)), floats(executor.tensor(written.doubled)),
               timed};
  });
  return outcome;
}

TEST(NodeSeconds, TakeThePlaceOfComputingButNotOfMessages) {
  const Outcome computed = run_two_ranks(/*takes_time=*/false);
  EXPECT_THAT(computed.gathered, ElementsAre(1, 2));
  EXPECT_THAT(computed.doubled, ElementsAre(2, 4));
  EXPECT_THAT(computed.timed, IsEmpty());
  const Outcome timed = run_two_ranks(/*takes_time=*/true);
  EXPECT_THAT(timed.gathered, ElementsAre(1, 2));
  EXPECT_THAT(timed.doubled, Not(ElementsAre(2, 4)));
  EXPECT_THAT(timed.timed, ElementsAre("scale"));
}

TEST(NodeSeconds, WithoutOneANodeComputes) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{1}, DType::f32, {}});
  const Value doubled = scale(builder, x, 2.0);
  builder.output(doubled);
  Runtime runtime(host_target(1));
  Executor executor({&program}, std::array{kWholeProgram}, runtime);
  const auto run = [&] {
    executor.tensor(x).data<float>()[0] = 3;
    executor.run(kWholeProgram);
    return floats(executor.tensor(doubled))[0];
  };
  executor.set_node_seconds([](const Program&, const Node&) { return 0.0; });
  EXPECT_EQ(run(), 0);
  executor.set_node_seconds([](const Program&, const Node&) { return std::nullopt; });
  EXPECT_EQ(run(), 6);
  executor.set_node_seconds([](const Program&, const Node&) { return 0.0; });
  executor.tensor(doubled).data<float>()[0] = 1;
  EXPECT_EQ(run(), 1);
  executor.set_node_seconds({});
  EXPECT_EQ(run(), 6);
}

TEST(NodeSeconds, AnActionLastsAsLongAsItsNodes) {
  Program program;
  Builder builder(program);
  Value value = builder.input("x", {{1}, DType::f32, {}});
  for (int i = 0; i < 3; ++i) value = scale(builder, value, 2.0);
  builder.output(value);
  Runtime runtime(host_target(1));
  Executor executor({&program}, std::array{kWholeProgram}, runtime);
  executor.set_node_seconds([](const Program&, const Node&) { return 0.01; });
  const Stopwatch watch;
  executor.run(kWholeProgram);
  EXPECT_GE(watch.seconds(), 0.03);
}

TEST(ComputeClock, WorkThatIsAddedLaterBeginsThen) {
  ComputeClock clock;
  const Stopwatch watch;
  clock.add(0.01);
  clock.join();
  clock.join();  // nothing is left
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  clock.add(0.01);
  clock.add(0.01);
  clock.join();
  EXPECT_GE(watch.seconds(), 0.04);
}

}  // namespace
}  // namespace tessera
