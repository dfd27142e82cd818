#include <array>
#include <chrono>
#include <latch>
#include <memory>
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
#include "engine/lane_operations.h"
#include "engine/trace.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kWholeProgram;
using ::testing::Not;

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

/// What the lanes of a rank wait for.
struct LaneOrder {
  std::latch has_called{1};  ///< the rank is within its call
  std::latch may_end{1};     ///< the call may end
};

/// Returns the traced step of a rank whose nodes take 200, 10, 10 and 10 ms. Before the first one a
/// sum over the ranks begins, which goes on until the third one is put into the clock. The last one
/// needs the sum.
StepTrace trace_beside_a_call(RankGroups& groups) {
  const Mesh& mesh = groups.mesh();
  LaneOrder order;
  Program program(mesh, groups.rank());
  Builder builder(program);
  const Value x = builder.input("x", {{8}, DType::f32, {}});
  const auto calls = [&] {
    order.has_called.count_down();
    order.may_end.wait();
  };
  const Value sum = builder.apply(
      std::make_shared<testing::LaneSum>(Lane::exchanges, std::vector{mesh.tensor()}, 2, "sum",
                                         /*in_place=*/false, calls),
      {x})[0];
  Value value = x;
  for (int i = 0; i < 3; ++i) {
    value = builder.apply(std::make_shared<testing::LaneStep>(Lane::compute), {value})[0];
  }
  builder.output(builder.apply(std::make_shared<testing::LaneCompute>(), {value, sum})[0]);
  Runtime runtime(host_target(1));
  runtime.join(groups);
  Executor executor({&program}, std::array{kWholeProgram}, runtime);
  executor.tensor(x).fill_zero();
  int nodes = 0;
  executor.set_node_seconds([&](const Program&, const Node&) {
    ++nodes;
    if (nodes == 1) order.has_called.wait();
    if (nodes == 3) order.may_end.count_down();
    return nodes == 1 ? 0.2 : 0.01;
  });
  Trace trace(runtime);
  executor.set_trace(&trace);
  {
    const Trace::Step step(&trace, 1);
    executor.run(kWholeProgram);
  }
  executor.set_trace(nullptr);
  return trace.step();
}

TEST(NodeSeconds, AreInTheTraceAsTheClockHasThem) {
  const Mesh mesh({.tensor = 2});
  World world(2);
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const StepTrace step = trace_beside_a_call(groups);
    std::vector<TraceEvent> computes;
    std::vector<TraceEvent> calls;
    for (const TraceEvent& event : step.events) {
      (event.lane == Lane::compute ? computes : calls).push_back(event);
    }
    ASSERT_EQ(computes.size(), 4U);
    ASSERT_EQ(calls.size(), 1U);
    const auto end_of = [](const TraceEvent& event) { return event.start + event.duration; };
    for (size_t i = 0; i < computes.size(); ++i) {
      EXPECT_NEAR(computes[i].duration, i == 0 ? 0.2 : 0.01, 1e-8);
      if (i == 0) continue;
      EXPECT_NEAR(computes[i].start, end_of(computes[i - 1]), 1e-8) << "nothing is awaited";
    }
    EXPECT_LE(calls[0].start, computes[0].start);
    EXPECT_GT(end_of(calls[0]), computes[0].start) << "the call is beside computing";
    EXPECT_GE(computes[3].start, end_of(calls[0])) << "it needs the sum";
    EXPECT_GE(step.start + step.duration, end_of(computes[3]));
    EXPECT_EQ(computes[0].name, "lane_step");
    EXPECT_EQ(calls[0].groups.size(), 1U);
  });
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
