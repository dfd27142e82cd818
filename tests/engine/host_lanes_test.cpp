#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "engine/lane_operations.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LaneStep;
using testing::LaneSum;

/// A program of lane steps on the processor.
struct Steps {
  Program program;
  Builder builder{program};
  Value x = builder.input("x", {{1}, DType::f32, {}});
  Runtime runtime{host_target(1)};

  Value add(Lane lane, Value from, float added = 0, std::function<void()> work = {}) {
    return builder.apply_single(std::make_shared<LaneStep>(lane, added, std::move(work)), {from});
  }
  std::vector<float> run(Executor& executor) {
    executor.tensor(x).data<float>()[0] = 1;
    executor.run(testing::kWholeProgram);
    std::vector<float> results;
    for (const Value output : program.outputs()) {
      results.push_back(executor.tensor(output).data<float>()[0]);
    }
    return results;
  }
  std::vector<float> run() {
    Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
    return run(executor);
  }
};

/// Something that one thread does and another waits for, or fails after a minute.
class Flag {
 public:
  std::function<void()> set() {
    return [this] { promise_.set_value(); };
  }
  std::function<void()> wait() {
    return [this] {
      if (future_.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
        throw Error("nothing runs beside this");
      }
    };
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

TEST(HostLanes, ComputeGoesOnWhileTheNetworkWorks) {
  Flag computed;
  Steps steps;
  const Value sent = steps.add(Lane::exchanges, steps.x, 10, computed.wait());
  const Value made = steps.add(Lane::compute, steps.x, 2, computed.set());
  steps.builder.output(steps.add(Lane::compute, sent, 100));
  steps.builder.output(made);
  EXPECT_THAT(steps.run(), ElementsAre(111, 3));
}

TEST(HostLanes, TwoLanesOfTheNetworkWorkAtTheSameTime) {
  Flag reduced, exchanged;
  Steps steps;
  const Value sent = steps.add(Lane::exchanges, steps.x, 10, [&] {
    exchanged.set()();
    reduced.wait()();
  });
  const Value sum = steps.add(Lane::reductions, steps.x, 20, [&] {
    reduced.set()();
    exchanged.wait()();
  });
  steps.builder.output(steps.add(Lane::compute, sent, 100));
  steps.builder.output(steps.add(Lane::compute, sum, 100));
  EXPECT_THAT(steps.run(), ElementsAre(111, 121));
}

TEST(HostLanes, ALaneWaitsForWhatAnotherOneMakes) {
  Steps steps;
  const Value sent = steps.add(Lane::exchanges, steps.x, 10,
                               [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const Value sum = steps.add(Lane::reductions, sent, 20);
  steps.add(Lane::compute, steps.x);
  steps.builder.output(steps.add(Lane::compute, sum, 100));
  EXPECT_THAT(steps.run(), ElementsAre(131));
}

TEST(HostLanes, WhatIsAwaitedAtOnceRunsOnTheCallersThread) {
  std::set<std::thread::id> threads;
  const auto note = [&] { threads.insert(std::this_thread::get_id()); };
  Steps steps;
  Value value = steps.x;
  for (int i = 0; i < 3; ++i) {
    value = steps.add(Lane::compute, value, 1, note);
    value = steps.add(Lane::exchanges, value, 1, note);
    value = steps.add(Lane::reductions, steps.add(Lane::compute, value), 1, note);
  }
  steps.builder.output(value);
  EXPECT_THAT(steps.run(), ElementsAre(10));
  EXPECT_THAT(threads, ElementsAre(std::this_thread::get_id()));
}

TEST(HostLanes, ObserversSeeNodesInTheOrderOfTheProgramOnTheirThread) {
  std::set<std::thread::id> threads;
  const auto note = [&] { threads.insert(std::this_thread::get_id()); };
  Steps steps;
  const Value sent = steps.add(Lane::exchanges, steps.x, 10, note);
  steps.add(Lane::compute, steps.x, 2, note);
  steps.builder.output(steps.add(Lane::compute, sent, 100, note));
  Executor executor({&steps.program}, std::array{testing::kWholeProgram}, steps.runtime);
  std::vector<float> seen;
  executor.set_observer([&](const Program&, const Node&, std::span<const Tensor> outputs) {
    seen.push_back(outputs[0].data<float>()[0]);
  });
  EXPECT_THAT(steps.run(executor), ElementsAre(111));
  EXPECT_THAT(seen, ElementsAre(11, 3, 111));
  EXPECT_THAT(threads, ElementsAre(std::this_thread::get_id()));
  executor.set_observer({});
  EXPECT_THAT(steps.run(executor), ElementsAre(111));
  EXPECT_EQ(threads.size(), 2U) << "without an observer the lane has its thread";
}

TEST(HostLanes, AnErrorOnALaneEndsTheActionAndLeavesOutWhatFollows) {
  bool fails = true;
  int later = 0;
  Steps steps;
  const Value sent = steps.add(Lane::exchanges, steps.x, 10, [&] {
    if (fails) throw Error("the link is down");
  });
  const Value again = steps.add(Lane::exchanges, steps.x, 20, [&] { ++later; });
  steps.add(Lane::compute, steps.x);
  steps.builder.output(steps.add(Lane::compute, sent, 100));
  steps.builder.output(steps.add(Lane::compute, again, 100));
  Executor executor({&steps.program}, std::array{testing::kWholeProgram}, steps.runtime);
  EXPECT_THAT(error_of([&] { steps.run(executor); }), HasSubstr("the link is down"));
  EXPECT_EQ(later, 0);
  fails = false;
  EXPECT_THAT(steps.run(executor), ElementsAre(111, 121));
  EXPECT_EQ(later, 1);
}

TEST(HostLanes, OfTwoErrorsTheFirstCounts) {
  Flag failed;
  Steps steps;
  const Value first = steps.add(Lane::exchanges, steps.x, 0, [&] {
    failed.set()();
    throw Error("the first");
  });
  const Value second = steps.add(Lane::reductions, steps.x, 0, [&] {
    failed.wait()();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw Error("the second");
  });
  steps.add(Lane::compute, steps.x);
  steps.builder.output(steps.add(Lane::compute, second));
  steps.builder.output(steps.add(Lane::compute, first));
  EXPECT_THAT(error_of([&] { steps.run(); }), HasSubstr("the first"));
}

TEST(HostLanes, AnErrorOfComputingWakesTheLaneThatWaitsForOtherRanks) {
  // Rank 0 fails while its lane waits for a sum that rank 1 never begins: rank 1 waits for another.
  const Mesh mesh({.tensor = 2});
  World world(2, std::chrono::minutes(1));
  std::array<std::string, 2> errors;
  run_mesh(world, mesh, [&](RankGroups& groups) {
    Program program(mesh, groups.rank());
    Builder builder(program);
    const Value x = builder.input("x", {{1}, DType::f32, {}});
    Flag begun;
    const Lane lane = groups.rank() == 0 ? Lane::exchanges : Lane::reductions;
    const Value sent = builder.apply_single(
        std::make_shared<LaneSum>(lane, std::vector{mesh.tensor()}, 2, "sum", false, begun.set()),
        {x});
    const auto fail = [&] {
      begun.wait()();
      if (groups.rank() == 0) throw Error("out of range");
    };
    const Value made =
        builder.apply_single(std::make_shared<LaneStep>(Lane::compute, 0.0F, fail), {x});
    builder.output(builder.apply_single(std::make_shared<LaneStep>(Lane::compute), {sent}));
    builder.output(made);
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
    executor.tensor(x).data<float>()[0] = 1;
    executor.join_groups();
    groups.world(kControlLane).barrier("begin");
    errors[static_cast<size_t>(groups.rank())] =
        error_of([&] { executor.run(testing::kWholeProgram); });
  });
  EXPECT_THAT(errors[0], HasSubstr("out of range"));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0"), HasSubstr("out of range")));
}

/// The lanes of rank 0 go on when its action has ended: one fails, and the other waits for a sum
/// that rank 1 never begins, because it waits for another one. Calls use(executor, failed) on rank
/// 0 with the result of the lane that fails, and destroys its executor. Returns the error of
/// rank 1.
std::string error_of_other_rank(const std::function<void(Executor&, Value)>& use) {
  const Mesh mesh({.tensor = 2});
  World world(2, std::chrono::seconds(20));
  std::string error;
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const bool is_first = groups.rank() == 0;
    Program program(mesh, groups.rank());
    Builder builder(program);
    const Value x = builder.input("x", {{1}, DType::f32, {}});
    const Value made = builder.apply_single(std::make_shared<LaneStep>(Lane::compute), {x});
    Flag begun;
    const Value sum = builder.apply_single(
        std::make_shared<LaneSum>(is_first ? Lane::reductions : Lane::exchanges,
                                  std::vector{mesh.tensor()}, 2, "sum", false, begun.set()),
        {made});
    Value failed;
    if (is_first) {
      const auto fail = [&] {
        begun.wait()();
        throw Error("the link is down");
      };
      failed =
          builder.apply_single(std::make_shared<LaneStep>(Lane::exchanges, 0.0F, fail), {made});
    }
    builder.output(
        builder.apply_single(std::make_shared<LaneStep>(Lane::compute), {is_first ? made : sum}));
    Runtime runtime(host_target(1));
    runtime.join(groups);
    {
      Executor executor({&program}, std::array{testing::kWholeProgram}, runtime);
      executor.tensor(x).data<float>()[0] = 1;
      executor.join_groups();
      groups.world(kControlLane).barrier("begin");
      if (is_first) {
        executor.run(testing::kWholeProgram);
        use(executor, failed);
      } else {
        error = error_of([&] { executor.run(testing::kWholeProgram); });
      }
    }
    groups.world(kControlLane).barrier("end");
  });
  return error;
}

TEST(HostLanes, ALanesErrorWakesOtherRanksWhereverItComesOut) {
  const auto is_named = AllOf(HasSubstr("rank 0"), HasSubstr("the link is down"));
  EXPECT_THAT(error_of_other_rank([](Executor& executor, Value failed) {
                EXPECT_THAT(error_of([&] { executor.tensor(failed); }),
                            HasSubstr("the link is down"));
              }),
              is_named)
      << "when its result is read";
  EXPECT_THAT(error_of_other_rank([](Executor&, Value) {}), is_named)
      << "when the executor is destroyed";
}

TEST(HostLanes, ATraceHasTheTimesOfEachLane) {
  Flag computed;
  Steps steps;
  const Value first = steps.add(Lane::exchanges, steps.x, 10, computed.wait());
  const Value second = steps.add(Lane::reductions, steps.x, 20);
  steps.add(Lane::compute, steps.x, 0, computed.set());
  steps.builder.output(steps.add(Lane::compute, first));
  steps.builder.output(steps.add(Lane::compute, second));
  Executor executor({&steps.program}, std::array{testing::kWholeProgram}, steps.runtime);
  Trace trace(steps.runtime);
  {
    const Trace::Step step(&trace, 1);
    executor.set_trace(&trace);
    steps.run(executor);
    executor.set_trace(nullptr);
  }
  std::array<std::vector<TraceEvent>, kLanes> lanes;
  for (const TraceEvent& event : trace.step().events) {
    lanes[static_cast<size_t>(event.lane)].push_back(event);
  }
  const auto& compute = lanes[static_cast<size_t>(Lane::compute)];
  const auto& exchanges = lanes[static_cast<size_t>(Lane::exchanges)];
  ASSERT_EQ(compute.size(), 3U);
  ASSERT_EQ(exchanges.size(), 1U);
  EXPECT_EQ(lanes[static_cast<size_t>(Lane::reductions)].size(), 1U);
  // The exchange waits for the first computation to set its flag.
  EXPECT_GE(exchanges[0].start + exchanges[0].duration, compute[0].start);
  EXPECT_GE(compute[1].start, exchanges[0].start + exchanges[0].duration);
  for (size_t i = 1; i < compute.size(); ++i) {
    EXPECT_GE(compute[i].start, compute[i - 1].start + compute[i - 1].duration);
  }
}

TEST(HostLanes, InATimedRunALaneWaitsForTheTimeOfWhatIsComputedBefore) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point summed;
  Steps steps;
  const Value made = steps.add(Lane::compute, steps.x);
  const Value sum = steps.add(Lane::reductions, made, 0, [&] { summed = Clock::now(); });
  steps.add(Lane::compute, steps.x);
  steps.builder.output(steps.add(Lane::compute, sum));
  Executor executor({&steps.program}, std::array{testing::kWholeProgram}, steps.runtime);
  executor.set_node_seconds([](const Program&, const Node&) { return 0.01; });
  const Clock::time_point begin = Clock::now();
  steps.run(executor);
  EXPECT_GE(summed - begin, std::chrono::milliseconds(10));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(30));
}

}  // namespace
}  // namespace tessera
