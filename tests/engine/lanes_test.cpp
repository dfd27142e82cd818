#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/action.h"
#include "engine/executor.h"
#include "engine/joins.h"
#include "engine/lane_operations.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/run_program.h"
#include "support/whole_labels.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

/// Copies its first input, adding `sum` to each element. It may wait for a flag first, and may set
/// one at its end.
class Copy final : public Operation {
 public:
  Copy(Lane lane, float sum, std::atomic<bool>* waits_for = nullptr,
       std::atomic<bool>* sets = nullptr)
      : lane_(lane), sum_(sum), waits_for_(waits_for), sets_(sets) {}
  std::string_view name() const override { return "copy"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return testing::whole_labels(inputs, {inputs[0].shape.rank()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }
  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    return inputs[0].bytes();
  }
  void run(const Execution& execution) const override {
    auto* const from = execution.inputs[0].pointer<float>();
    auto* const to = execution.outputs[0].pointer<float>();
    auto* const through = reinterpret_cast<float*>(execution.workspace.data());
    const int64_t count = execution.outputs[0].elements();
    execution.stream->enqueue([=, this] {
      for (int64_t i = 0; i < count; ++i) through[i] = from[i];
      while (waits_for_ != nullptr && !*waits_for_) std::this_thread::yield();
      for (int64_t i = 0; i < count; ++i) to[i] = through[i] + sum_;
      if (sets_ != nullptr) *sets_ = true;
    });
  }

 private:
  Lane lane_;
  float sum_;
  std::atomic<bool>* waits_for_;
  std::atomic<bool>* sets_;
};

/// Adds its second input into the first one.
class AddInto final : public Operation {
 public:
  std::string_view name() const override { return "add_into"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return testing::whole_labels(inputs, {}, {0});
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return {}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::vector<int> updated_inputs() const override { return {0}; }
  void run(const Execution&) const override {}
};

/// Notes the first element of its input, on the network's lane, once a flag is set.
class Note final : public testing::LaneOperation {
 public:
  Note(std::vector<float>& noted, std::atomic<bool>& waits_for)
      : LaneOperation("note", Lane::reductions), noted_(noted), waits_for_(waits_for) {}
  void run(const Execution& execution) const override {
    auto* const from = execution.inputs[0].pointer<float>();
    execution.stream->enqueue([=, this] {
      while (!waits_for_) std::this_thread::yield();
      noted_.push_back(*from);
    });
  }

 private:
  std::vector<float>& noted_;
  std::atomic<bool>& waits_for_;
};

struct Lanes {
  Program program;
  Builder builder{program};
  Value x = builder.input("x", {{4}, DType::f32, {}});

  Value copy(Lane lane, Value from, float sum, std::atomic<bool>* waits_for = nullptr,
             std::atomic<bool>* sets = nullptr) {
    return builder.apply_single(std::make_shared<Copy>(lane, sum, waits_for, sets), {from});
  }
  Joins joins() const { return find_joins(program, segment_nodes(program, Segment::whole)); }
};

/// Returns the awaited steps of a lane, by step.
std::vector<int> awaited(const Joins& joins, Lane lane) {
  std::vector<int> result;
  for (const LaneSteps& steps : joins.awaited) result.push_back(steps[static_cast<size_t>(lane)]);
  return result;
}

TEST(Joins, AStepWaitsForWhatItReadsAndForAllBeforeThat) {
  Lanes lanes;
  const Value first = lanes.copy(Lane::exchanges, lanes.x, 1);   // step 0
  lanes.copy(Lane::compute, lanes.x, 1);                         // 1
  const Value second = lanes.copy(Lane::exchanges, lanes.x, 2);  // 2
  const Value third = lanes.copy(Lane::exchanges, first, 3);     // 3: in order, no join
  lanes.copy(Lane::compute, second, 1);                          // 4 waits for 2, and so for 0
  lanes.copy(Lane::compute, first, 1);                           // 5 need not wait again
  lanes.builder.output(third);
  const Joins joins = lanes.joins();
  EXPECT_EQ(awaited(joins, Lane::exchanges), (std::vector<int>{-1, -1, -1, -1, 2, -1}));
  EXPECT_EQ(joins.busy_until, (std::vector<int>{3, 1, 3, 5, 4, 5}));
}

TEST(Joins, AStepWaitsBeforeItWritesWhatTheNetworkReads) {
  Lanes lanes;
  const Value state = lanes.builder.state("state", {{4}, DType::f32, {}});
  lanes.copy(Lane::exchanges, state, 1);                               // step 0
  lanes.copy(Lane::compute, state, 1);                                 // 1: both read
  lanes.builder.apply(std::make_shared<AddInto>(), {state, lanes.x});  // 2
  EXPECT_EQ(awaited(lanes.joins(), Lane::exchanges), (std::vector<int>{-1, -1, 0}));
}

TEST(Joins, LanesThatShareNothingDoNotWaitForEachOther) {
  Lanes lanes;
  const Value exchanged = lanes.copy(Lane::exchanges, lanes.x, 1);  // step 0
  const Value reduced = lanes.copy(Lane::reductions, lanes.x, 2);   // 1
  lanes.copy(Lane::compute, reduced, 3);                            // 2
  lanes.copy(Lane::compute, exchanged, 4);                          // 3
  const Joins joins = lanes.joins();
  EXPECT_EQ(awaited(joins, Lane::exchanges), (std::vector<int>{-1, -1, -1, 0}));
  EXPECT_EQ(awaited(joins, Lane::reductions), (std::vector<int>{-1, -1, 1, -1}));
  EXPECT_EQ(joins.busy_until, (std::vector<int>{2, 1, 2, 3}));
}

TEST(Joins, OneLaneWaitsForAnotherAndWhoWaitsForItKnowsBothAreDone) {
  Lanes lanes;
  const Value exchanged = lanes.copy(Lane::exchanges, lanes.x, 1);   // step 0
  const Value reduced = lanes.copy(Lane::reductions, exchanged, 2);  // 1
  lanes.copy(Lane::exchanges, lanes.x, 3);                           // 2
  const Value sum = lanes.builder.state("state", {{4}, DType::f32, {}});
  lanes.builder.apply(std::make_shared<AddInto>(), {sum, reduced});  // 3
  lanes.copy(Lane::compute, exchanged, 4);                           // 4
  const Joins joins = lanes.joins();
  EXPECT_EQ(awaited(joins, Lane::exchanges), (std::vector<int>{-1, 0, -1, -1, -1}));
  EXPECT_EQ(awaited(joins, Lane::reductions), (std::vector<int>{-1, -1, -1, 1, -1}));
  EXPECT_EQ(joins.busy_until, (std::vector<int>{2, 2, 4, 3, 4}));
}

TEST(Joins, AStepThatReadsTheResultsOfBothLanesWaitsForTheOneThatWaitedForTheOther) {
  Lanes lanes;
  const Value exchanged = lanes.copy(Lane::exchanges, lanes.x, 1);         // step 0
  const Value reduced = lanes.copy(Lane::reductions, exchanged, 2);        // 1
  lanes.builder.apply(std::make_shared<AddInto>(), {reduced, exchanged});  // 2
  const Joins joins = lanes.joins();
  EXPECT_EQ(awaited(joins, Lane::exchanges), (std::vector<int>{-1, 0, -1}));
  EXPECT_EQ(awaited(joins, Lane::reductions), (std::vector<int>{-1, -1, 1}));
  EXPECT_EQ(joins.busy_until, (std::vector<int>{1, 1, 2}));
}

TEST(Joins, NothingIsComputedInPlaceOfWhatTheNetworkStillReads) {
  Lanes lanes;
  const Value made = lanes.copy(Lane::compute, lanes.x, 1);
  const Value sent = lanes.copy(Lane::exchanges, made, 1);
  // The last use of `made`, right before the step that waits for the network.
  const Value scaled = scale(lanes.builder, made, 2);
  lanes.builder.output(scaled);
  lanes.builder.output(lanes.copy(Lane::compute, sent, 1));
  ASSERT_EQ(lanes.program.nodes()[2].operation->in_place_input(0), 0);
  const Program* const programs[] = {&lanes.program};
  constexpr Action kWhole[] = {{.segment = Segment::whole}};
  const MemoryPlan plan = plan_memory(programs, kWhole, host_target(1));
  const std::vector<int64_t>& offsets = plan.programs[0].values[0];
  EXPECT_NE(offsets[static_cast<size_t>(scaled.id)], offsets[static_cast<size_t>(made.id)]);
}

Runtime emulated_runtime() {
  return testing::make_runtime(host_target(1), testing::Emulation{.lanes = 32});
}

/// Runs a program on the emulated device and returns its outputs for x = 1, 2, 3, 4. Its steps wait
/// for each other's flags, which no kernel of a GPU could.
std::vector<std::vector<float>> run_lanes(const Lanes& lanes) {
  Runtime runtime = emulated_runtime();
  constexpr Action kWhole[] = {{.segment = Segment::whole}};
  Executor executor({&lanes.program}, kWhole, runtime);
  const std::vector<float> x{1, 2, 3, 4};
  upload(std::as_bytes(std::span(x)), executor.tensor(lanes.x));
  executor.run(kWhole[0]);
  std::vector<std::vector<float>> results;
  for (const Value output : lanes.program.outputs()) {
    results.emplace_back(4);
    readback(executor.tensor(output), std::as_writable_bytes(std::span(results.back())));
  }
  return results;
}

TEST(DeviceLanes, ComputeGoesOnWhileTheNetworkWorks) {
  // The network waits for a flag that a later step of the compute lane sets: one lane after the
  // other would never end.
  std::atomic<bool> computed = false;
  Lanes lanes;
  const Value sent = lanes.copy(Lane::exchanges, lanes.x, 10, &computed);
  Value value = lanes.x;
  for (int i = 0; i < 5; ++i) value = lanes.copy(Lane::compute, value, 1);
  value = lanes.copy(Lane::compute, value, 1, nullptr, &computed);
  lanes.builder.output(value);
  lanes.builder.output(lanes.copy(Lane::compute, sent, 100));
  EXPECT_EQ(run_lanes(lanes),
            (std::vector<std::vector<float>>{{7, 8, 9, 10}, {111, 112, 113, 114}}));
}

TEST(DeviceLanes, TheNetworkWaitsForWhatItSends) {
  std::atomic<bool> go = false;
  Lanes lanes;
  const Value made = lanes.copy(Lane::compute, lanes.x, 5, &go);
  lanes.builder.output(lanes.copy(Lane::exchanges, made, 10));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    go = true;
  });
  EXPECT_EQ(run_lanes(lanes), (std::vector<std::vector<float>>{{16, 17, 18, 19}}));
  later.join();
}

TEST(DeviceLanes, MemoryThatTheNetworkReadsIsNotGivenAwayBeforeItIsDone) {
  // `made` has its last use at the network's step, and the steps after it want memory.
  std::atomic<bool> computed = false;
  Lanes lanes;
  const Value made = lanes.copy(Lane::compute, lanes.x, 1);
  const Value sent = lanes.copy(Lane::exchanges, made, 10, &computed);
  Value value = lanes.x;
  for (int i = 0; i < 4; ++i) value = lanes.copy(Lane::compute, value, 1);
  value = lanes.copy(Lane::compute, value, 1, nullptr, &computed);
  lanes.builder.output(lanes.copy(Lane::compute, sent, 100));
  lanes.builder.output(value);
  const Program* const programs[] = {&lanes.program};
  constexpr Action kWhole[] = {{.segment = Segment::whole}};
  const MemoryPlan plan = plan_memory(programs, kWhole, host_target(1));
  const ProgramMemory& memory = plan.programs[0];
  for (const Node& node : lanes.program.nodes()) {
    const Value output = node.outputs[0];
    if (node.operation->lane() == Lane::exchanges || output.id == made.id) continue;
    if (output.id > value.id) continue;  // after the join
    EXPECT_NE(memory.values[0][static_cast<size_t>(output.id)],
              memory.values[0][static_cast<size_t>(made.id)]);
  }
  const int64_t sending = memory.workspaces[0][1];
  for (size_t step = 2; step < 7; ++step) {
    EXPECT_NE(memory.workspaces[0][step], sending) << "the network's workspace";
  }
  EXPECT_EQ(run_lanes(lanes)[0], (std::vector<float>{112, 113, 114, 115}));
}

/// Sets a flag after a while, when whoever does not wait for it has long gone on.
class SetLater {
 public:
  explicit SetLater(std::atomic<bool>& flag)
      : thread_([&flag] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          flag = true;
        }) {}
  ~SetLater() { thread_.join(); }
  SetLater(const SetLater&) = delete;
  SetLater& operator=(const SetLater&) = delete;

 private:
  std::thread thread_;
};

/// As a pipeline's stages have it, whose frames begin with a posted receive.
TEST(DeviceLanes, AFrameThatAHoldBeginsWaitsForWhatIsStillAtWorkInIt) {
  std::atomic<bool> go = false;
  std::vector<float> noted;
  Lanes lanes;
  const Value made = lanes.copy(Lane::compute, lanes.x, 10);
  lanes.builder.apply_single(std::make_shared<Note>(noted, go), {made});
  const Hold receive{.values = {lanes.x}, .begins = true};
  const Hold arrival{.values = {lanes.x}, .begins = false};
  const std::vector<ListEntry> list{receive, arrival, testing::kWholeProgram,
                                    receive, arrival, testing::kWholeProgram};
  Runtime runtime = emulated_runtime();
  Executor executor({&lanes.program}, list, runtime);
  for (const float first : {1.0F, 2.0F, 3.0F, 4.0F}) {
    const std::vector<float> x(4, first);
    executor.hold(receive);
    executor.write(std::as_bytes(std::span(x)), executor.tensor(lanes.x));
    executor.hold(arrival);
    executor.run(testing::kWholeProgram);
  }
  const SetLater later(go);
  executor.synchronize();
  EXPECT_THAT(noted, ElementsAre(11, 12, 13, 14));
}

/// A program in two parts. The first hands over the program's output to a slow lane, and nothing of
/// the second needs it.
struct SlowOutput {
  std::atomic<bool> go = false;
  Lanes lanes;
  Value sent = lanes.copy(Lane::exchanges, lanes.x, 10, &go);
  std::vector<ListEntry> parts{Action{.steps = {.begin = 0, .end = 2}},
                               Action{.steps = {.begin = 2}}};

  SlowOutput() {
    const Value made = lanes.copy(Lane::compute, lanes.x, 1);
    lanes.copy(Lane::compute, made, 1);
    lanes.builder.output(sent);
  }
};

/// What is sent after the segment is in the compute lane's order, as messages between stages are.
TEST(DeviceLanes, TheEndOfASegmentWaitsForOutputsOfItsEarlierParts) {
  SlowOutput slow;
  Runtime runtime = emulated_runtime();
  Executor executor({&slow.lanes.program}, slow.parts, runtime);
  std::vector<float> sent;
  for (const float first : {1.0F, 2.0F, 3.0F}) {
    slow.go = false;
    const std::vector<float> x(4, first);
    executor.write(std::as_bytes(std::span(x)), executor.tensor(slow.lanes.x));
    for (const ListEntry& part : slow.parts) executor.run(std::get<Action>(part));
    const auto* const output = executor.tensor(slow.sent).pointer<float>();
    executor.stream()->enqueue([&sent, output] { sent.push_back(*output); });
    const SetLater later(slow.go);
    executor.stream()->synchronize();
  }
  EXPECT_THAT(sent, ElementsAre(11, 12, 13));
}

TEST(MemoryPlan, HasNothingAtWorkThatTheEndOfASegmentHasAwaited) {
  const SlowOutput slow;
  Lanes after;
  after.builder.output(after.copy(Lane::compute, after.x, 1));
  const Program* const programs[] = {&slow.lanes.program, &after.program};
  std::vector<ListEntry> list = slow.parts;
  list.emplace_back(Action{.program = 1});
  const MemoryPlan plan = plan_memory(programs, list, host_target(1));
  ASSERT_EQ(plan.outlasting.size(), 1U);
  for (const auto& [situation, at_work] : plan.situations) {
    EXPECT_EQ(at_work.size(), situation.begin_step == 0 ? 0U : 1U);
  }
}

/// A list runs again and again. Here no action begins while a step is at work, but for the first
/// one of the next time.
TEST(MemoryPlan, KnowsAtTheBeginningOfAListWhatIsAtWorkAtItsEnd) {
  Lanes first, last;
  first.builder.output(first.copy(Lane::compute, first.x, 1));
  last.copy(Lane::reductions, last.copy(Lane::compute, last.x, 1), 1);
  const Program* const programs[] = {&first.program, &last.program};
  const Action actions[] = {{.program = 0}, {.program = 1}};
  const MemoryPlan plan = plan_memory(programs, actions, host_target(1));
  ASSERT_EQ(plan.outlasting.size(), 1U);
  for (const auto& [situation, at_work] : plan.situations) {
    EXPECT_EQ(at_work.size(), situation.program == 0 ? 1U : 0U);
  }
}

}  // namespace
}  // namespace tessera
