#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/executor.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/error_of.h"
#include "support/observed_accelerator.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::HeldStream;
using testing::ObservedAccelerator;

/// Adds its first input to a state, and gives the state's new value out.
class AddToState final : public Operation {
 public:
  explicit AddToState(Lane lane = Lane::compute) : lane_(lane) {}
  std::string_view name() const override { return "add_to_state"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }
  std::vector<int> updated_inputs() const override { return {1}; }
  void run(const Execution& execution) const override {
    ++runs;
    const auto* const x = execution.inputs[0].pointer<float>();
    auto* const state = execution.inputs[1].pointer<float>();
    auto* const output = execution.outputs[0].pointer<float>();
    execution.stream->enqueue([=, this] {
      if (fails) throw Error("an element that went out of range");
      *output = *state += *x;
    });
  }

  mutable int runs = 0;
  std::atomic<bool> fails = false;

 private:
  Lane lane_;
};

constexpr Action kWhole{.segment = Segment::whole};

Target emulated_target() {
  Target target = host_target(1);
  target.device = Device::emulated;
  return target;
}

/// A program that adds its input to a state, on an emulated device.
struct Machine {
  explicit Machine(Lane lane = Lane::compute) : operation(std::make_shared<AddToState>(lane)) {}

  void run(float number) {
    executor.write(std::as_bytes(std::span(&number, 1)), executor.tensor(x));
    executor.run(kWhole);
  }
  Snapshot read() {
    const Tensor tensors[] = {executor.tensor(sum)};
    return executor.read(tensors);
  }
  static float value(const Snapshot& snapshot) {
    snapshot.wait();
    return snapshot.tensors[0].values<float>()[0];
  }
  ObservedAccelerator& device() {
    return dynamic_cast<ObservedAccelerator&>(*runtime.accelerator());
  }

  std::shared_ptr<AddToState> operation;
  Program program;
  Builder builder{program};
  Value x = builder.input("x", {{1}, DType::f32, {}});
  Value state = builder.state("state", {{1}, DType::f32, {}});
  Value sum = write_sum();
  Runtime runtime{emulated_target(), std::make_unique<ObservedAccelerator>()};
  Executor executor{{&program}, std::span(&kWhole, 1), runtime};

 private:
  Value write_sum() {
    const Value value = builder.apply_single(operation, {x, state});
    builder.output(value);
    return value;
  }
};

TEST(DeviceExecutor, NothingWaitsForADeviceThatHasNotBegun) {
  Machine machine;
  machine.run(1);  // takes the pinned memory
  EXPECT_EQ(Machine::value(machine.read()), 1);
  HeldStream held(*machine.device().streams[0]);
  machine.run(10);
  const Snapshot first = machine.read();
  machine.run(100);
  const Snapshot second = machine.read();
  held.release();
  EXPECT_EQ(Machine::value(second), 111);
  EXPECT_EQ(Machine::value(first), 11);
}

TEST(DeviceExecutor, WritesOfManyActionsKeepTheirOrderWhileTheHostIsFarAhead) {
  // More actions than there are blocks of pinned memory: the host waits for the oldest then.
  Machine machine;
  float expected = 0;
  std::vector<std::pair<Snapshot, float>> results;
  for (int i = 1; i <= 200; ++i) {
    machine.run(static_cast<float>(i));
    expected += static_cast<float>(i);
    if (i % 10 == 0) results.emplace_back(machine.read(), expected);
  }
  for (const auto& [snapshot, value] : results) EXPECT_EQ(Machine::value(snapshot), value);
}

TEST(DeviceExecutor, PinnedMemoryIsUsedAgain) {
  Machine machine;
  for (int i = 0; i < 100; ++i) {
    machine.run(1);
    Machine::value(machine.read());
  }
  const int waits = machine.device().waits;
  for (int i = 0; i < 100; ++i) {
    machine.run(1);
    Machine::value(machine.read());
  }
  EXPECT_EQ(machine.device().waits, waits) << "no memory is taken, and nothing waits";
}

TEST(DeviceExecutor, AnActionIsCapturedAtItsSecondRunAndLaunchedAsAWhole) {
  Machine machine;
  float expected = 0;
  for (int i = 1; i <= 5; ++i) {
    machine.run(static_cast<float>(i));
    expected += static_cast<float>(i);
    EXPECT_EQ(Machine::value(machine.read()), expected) << "run " << i;
  }
  EXPECT_EQ(machine.operation->runs, 2) << "one plain run, one capture";
}

TEST(DeviceExecutor, WithoutGraphsEachRunIsIssued) {
  Machine machine;
  machine.executor.set_graphs(false);
  for (int i = 0; i < 5; ++i) machine.run(1);
  EXPECT_EQ(Machine::value(machine.read()), 5);
  EXPECT_EQ(machine.operation->runs, 5);
}

TEST(DeviceExecutor, WorkOfTheNetworkIsNotCaptured) {
  Machine machine(Lane::network);
  for (int i = 0; i < 5; ++i) machine.run(1);
  EXPECT_EQ(Machine::value(machine.read()), 5);
  EXPECT_EQ(machine.operation->runs, 5);
}

TEST(DeviceExecutor, AFailureComesOutWhereItsResultsAreRead) {
  Machine machine;
  machine.run(1);
  const Snapshot good = machine.read();
  machine.executor.synchronize();
  machine.operation->fails = true;
  machine.run(1);
  const Snapshot bad = machine.read();
  EXPECT_THAT(error_of([&] { bad.wait(); }), HasSubstr("out of range"));
  EXPECT_THAT(error_of([&] { machine.executor.synchronize(); }), HasSubstr("out of range"));
  EXPECT_EQ(Machine::value(good), 1);
}

TEST(DeviceExecutor, ATraceHasTheDevicesTimesOfBothLanes) {
  for (const Lane lane : {Lane::compute, Lane::network}) {
    Machine machine(lane);
    Trace trace(machine.runtime);
    machine.executor.set_trace(&trace);
    machine.run(1);
    machine.run(2);
    machine.executor.set_trace(nullptr);
    const std::vector<TraceEvent>& events = trace.step().events;
    ASSERT_EQ(events.size(), 4U);
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].name, i % 2 == 0 ? "copy_batch" : "add_to_state");
      EXPECT_EQ(events[i].lane, i % 2 == 0 ? Lane::compute : lane);
      EXPECT_GE(events[i].duration, 0);
      if (i == 0) continue;
      EXPECT_GE(events[i].start, events[i - 1].start + events[i - 1].duration - 1e-9);
    }
    EXPECT_EQ(machine.operation->runs, 2) << "a traced run is not captured";
    EXPECT_EQ(Machine::value(machine.read()), 3);
  }
}

}  // namespace
}  // namespace tessera
