// A step of two ranks that are threads, one of which comes late to a call.
#include <array>
#include <latch>
#include <memory>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "engine/lane_operations.h"
#include "ops/host_target.h"
#include "plan/account/critical_path.h"
#include "plan/account/network_account.h"
#include "program/builder.h"

namespace tessera {
namespace {

using testing::LaneStep;
using testing::LaneSum;

/// What the ranks wait for, so that the order of what they do is known.
struct Order {
  std::latch first_has_called{1};  ///< the first rank is within its first call
  std::array<std::latch, 2> computes{std::latch(1), std::latch(1)};  ///< by rank: beside a call
  std::array<std::latch, 2> calls{std::latch(1), std::latch(1)};     ///< by rank: beside computing
};

/// Writes a step. Rank 1 computes until rank 0 is in the first sum, so it comes late. On both ranks
/// the second sum runs beside computing.
void write_step(Builder& builder, Order& order) {
  const int rank = builder.program().rank();
  const auto own = static_cast<size_t>(rank);
  const std::vector axes{builder.program().mesh().tensor()};
  const Value x = builder.input("x", {{8}, DType::f32, {}});
  const auto late = [&order, rank] {
    if (rank == 1) order.first_has_called.wait();
  };
  const auto has_called = [&order, rank] {
    if (rank == 0) order.first_has_called.count_down();
  };
  const auto computes = [&order, own] {
    order.computes.at(own).count_down();
    order.calls.at(own).wait();
  };
  const auto calls = [&order, own] {
    order.calls.at(own).count_down();
    order.computes.at(own).wait();
  };
  const auto apply = [&](std::shared_ptr<const Operation> operation, Value value) {
    return builder.apply(std::move(operation), {value})[0];
  };
  const Value input = apply(std::make_shared<LaneStep>(Lane::compute, 1.0F, late), x);
  const Value sum =
      apply(std::make_shared<LaneSum>(Lane::exchanges, axes, 2, "first", false, has_called), input);
  const Value beside =
      apply(std::make_shared<LaneSum>(Lane::reductions, axes, 2, "second", false, calls), sum);
  builder.output(apply(std::make_shared<LaneStep>(Lane::compute, 1.0F, computes), sum));
  builder.output(beside);
}

/// Returns the trace of a step that all ranks run.
RunTrace traced_step(const Mesh& mesh) {
  Order order;
  RunTrace run;
  run.ranks.resize(static_cast<size_t>(mesh.ranks()));
  std::vector<double> begins(run.ranks.size());
  World world(mesh.ranks());
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const auto rank = static_cast<size_t>(groups.rank());
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Program program(mesh, groups.rank());
    Builder builder(program);
    write_step(builder, order);
    Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
    executor.tensor("x").fill_zero();
    Trace trace(runtime);
    begins[rank] = trace.begin();
    executor.set_trace(&trace);
    {
      const Trace::Step step(&trace, 1);
      executor.run(testing::kWholeProgram);
    }
    executor.set_trace(nullptr);
    run.ranks[rank].step = trace.step();
    run.ranks[rank].step.origin.rank = groups.rank();
  });
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const double moved = begins[rank] - std::ranges::min(begins);
    run.ranks[rank].step.start += moved;
    for (TraceEvent& event : run.ranks[rank].step.events) event.start += moved;
  }
  return run;
}

TEST(LateRank, IsWaitedForApartFromTheTransfer) {
  const RunTrace trace = traced_step(Mesh({.tensor = 2}));
  const auto calls = network_calls(trace);
  ASSERT_EQ(calls[0].size(), 2U);
  ASSERT_EQ(calls[1].size(), 2U);
  for (const auto& of_rank : calls) {
    for (const NetworkCall& call : of_rank) {
      EXPECT_EQ(call.match, CallMatch::known);
      EXPECT_EQ(call.axes, "tensor");
    }
  }
  const NetworkCall& waits = calls[0][0];
  const NetworkCall& late = calls[1][0];
  EXPECT_LT(waits.start, late.start) << "rank 1 begins when rank 0 has";
  ASSERT_TRUE(waits.arrival && late.arrival);
  EXPECT_EQ(waits.arrival->rank, 1U);
  EXPECT_EQ(waits.arrival->at, late.start);
  EXPECT_LT(waits.arrival->at, waits.end) << "it ends when rank 1 has begun";
  EXPECT_EQ(late.arrival->rank, 1U);
  EXPECT_EQ(late.arrival->at, late.start) << "it waits for nobody";
  const NetworkAccount account = account_for_network(trace, calls);
  EXPECT_GE(account.ranks[0].all.waiting, late.start - waits.start);
  for (const RankNetwork& rank : account.ranks) {
    EXPECT_GT(rank.all.hidden.count(), 0) << "the second call is beside computing";
    EXPECT_EQ(rank.all.hidden + rank.all.exposed(), rank.all.total);
  }
}

/// Until the transfer, the path is that of the late rank: what rank 0 does before is not on it.
TEST(LateRank, IsOnTheCriticalPath) {
  const RunTrace trace = traced_step(Mesh({.tensor = 2}));
  const auto calls = network_calls(trace);
  const CriticalPath path = find_critical_path(trace, calls);
  ASSERT_FALSE(path.parts.empty());
  EXPECT_EQ(path.unmatched, 0);
  for (const PathPart& part : path.parts) {
    if (part.end <= calls[1][0].start) {
      EXPECT_EQ(part.rank, 1U);
    }
  }
  EXPECT_EQ(path.parts.front().rank, 1U);
}

}  // namespace
}  // namespace tessera
