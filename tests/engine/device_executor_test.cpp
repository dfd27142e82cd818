#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/executor.h"
#include "ops/host_target.h"
#include "ops/update/kept_values.h"
#include "program/builder.h"
#include "support/error_of.h"
#include "support/observed_accelerator.h"
#include "support/tested_devices.h"
#include "support/whole_labels.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::HeldStream;
using testing::ObservedAccelerator;

// Work that fails, streams that are held and calls that are counted take the emulated device. What
// real kernels can show runs on every device.

/// Adds its first input to a state, and gives the state's new value out.
class AddToState final : public Operation {
 public:
  explicit AddToState(Lane lane = Lane::compute) : lane_(lane) {}
  std::string_view name() const override { return "add_to_state"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return testing::whole_labels(inputs, {inputs[0].shape.rank()}, {1});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  Lane lane() const override { return lane_; }
  std::vector<int> updated_inputs() const override { return {1}; }
  void require_runnable(Runtime&, std::span<const Spec>) const override {
    if (misses_a_library) throw Error("a library that is not there");
  }
  void run(const Execution& execution) const override {
    ++runs;
    if (allocates) execution.runtime.accelerator()->allocate(8);
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
  bool misses_a_library = false;
  bool allocates = false;

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

  void write(float number) {
    executor.write(std::as_bytes(std::span(&number, 1)), executor.tensor(x));
  }
  void run(float number) {
    write(number);
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

TEST(RequireRunnable, AsksEveryOperationOnADevice) {
  Machine machine;
  const Program* const programs[] = {&machine.program};
  require_runnable(programs, machine.runtime);
  machine.operation->misses_a_library = true;
  EXPECT_THAT(error_of([&] { require_runnable(programs, machine.runtime); }),
              HasSubstr("a library that is not there"));
  Runtime processor(host_target(1));
  require_runnable(programs, processor);
  EXPECT_EQ(machine.operation->runs, 0);
}

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
  for (const Lane lane : {Lane::compute, Lane::exchanges}) {
    Machine machine(lane);
    float expected = 0;
    for (int i = 1; i <= 5; ++i) {
      machine.run(static_cast<float>(i));
      expected += static_cast<float>(i);
      EXPECT_EQ(Machine::value(machine.read()), expected) << "run " << i;
    }
    EXPECT_EQ(machine.operation->runs, 2) << "one plain run, one capture";
  }
}

TEST(DeviceExecutor, AnErrorInACaptureComesOutAndTheNextRunCapturesAnew) {
  for (const Lane lane : {Lane::compute, Lane::exchanges}) {
    Machine machine(lane);
    machine.run(1);
    machine.operation->allocates = true;  // makes the capture invalid
    EXPECT_THAT(error_of([&] { machine.run(10); }), HasSubstr("memory to be allocated"));
    machine.operation->allocates = false;
    for (int i = 0; i < 3; ++i) machine.run(100);
    EXPECT_EQ(Machine::value(machine.read()), 301);
    EXPECT_EQ(machine.operation->runs, 3);
  }
}

TEST(DeviceExecutor, PinnedMemoryOutlivesTheWorkThatReadsIt) {
  std::atomic<bool> goes = false, done = false, freed_early = false;
  std::thread later;
  {
    Machine machine;
    *machine.device().freed = [&] { freed_early = freed_early || !done; };
    Stream& stream = *machine.device().streams[0];
    stream.enqueue([&] {
      while (!goes) std::this_thread::yield();
    });
    machine.write(1);  // an error ends the run before the action
    stream.enqueue([&] { done = true; });
    later = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      goes = true;
    });
  }
  later.join();
  EXPECT_TRUE(done);
  EXPECT_FALSE(freed_early);
}

TEST(DeviceExecutor, WithoutGraphsEachRunIsIssued) {
  Machine machine;
  machine.executor.set_graphs(false);
  for (int i = 0; i < 5; ++i) machine.run(1);
  EXPECT_EQ(Machine::value(machine.read()), 5);
  EXPECT_EQ(machine.operation->runs, 5);
}

void expect_failure_comes_out(Lane lane, bool graphs) {
  Machine machine(lane);
  machine.executor.set_graphs(graphs);
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

TEST(DeviceExecutor, AFailureComesOutWhereItsResultsAreRead) {
  for (const Lane lane : {Lane::compute, Lane::exchanges}) {
    for (const bool graphs : {true, false}) {
      SCOPED_TRACE(fmt::format("lane {}, graphs {}", static_cast<int>(lane), graphs));
      expect_failure_comes_out(lane, graphs);
    }
  }
}

/// An operation of the lane of compute, moved to another one.
class OnLane final : public Operation {
 public:
  OnLane(std::shared_ptr<const Operation> operation, Lane lane)
      : operation_(std::move(operation)), lane_(lane) {}
  std::string_view name() const override { return operation_->name(); }
  std::string labels(std::span<const Spec> inputs) const override {
    return operation_->labels(inputs);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return operation_->infer(inputs);
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return operation_->cost(inputs, outputs);
  }
  Lane lane() const override { return lane_; }
  std::vector<int> updated_inputs() const override { return operation_->updated_inputs(); }
  void run(const Execution& execution) const override {
    ++runs;
    operation_->run(execution);
  }

  mutable int runs = 0;

 private:
  std::shared_ptr<const Operation> operation_;
  Lane lane_;
};

std::shared_ptr<OnLane> running_sum_on(Lane lane) {
  Program program;
  Builder builder(program);
  add_to_sum(builder, builder.state("sum", {{1}, DType::f64, {}}),
             builder.input("x", {{1}, DType::f64, {}}));
  return std::make_shared<OnLane>(program.nodes()[0].operation, lane);
}

TEST(DeviceExecutor, BothLanesAreCapturedOnEveryDevice) {
  for (const testing::Emulation& device : testing::every_device()) {
    SCOPED_TRACE(testing::describe(device));
    Program program;
    Builder builder(program);
    const Value x = builder.input("x", {{1}, DType::f64, {}});
    const Value made = builder.state("made", {{1}, DType::f64, {}});
    const Value sent = builder.state("sent", {{1}, DType::f64, {}});
    const Value taken = builder.state("taken", {{1}, DType::f64, {}});
    const auto compute = running_sum_on(Lane::compute), network = running_sum_on(Lane::exchanges);
    builder.apply(compute, {made, x});
    builder.apply(network, {sent, made});
    builder.apply(compute, {taken, sent});
    Runtime runtime = testing::make_runtime(host_target(1), device);
    Executor executor({&program}, std::span(&kWhole, 1), runtime);
    std::vector<std::pair<Snapshot, double>> results;
    double expected[] = {0, 0, 0};
    for (double number = 1; number <= 20; ++number) {
      executor.write(std::as_bytes(std::span(&number, 1)), executor.tensor(x));
      executor.run(kWhole);
      double added = number;
      for (double& sum : expected) added = sum += added;
      const Tensor tensors[] = {executor.tensor(taken)};
      results.emplace_back(executor.read(tensors), expected[2]);
    }
    for (const auto& [snapshot, sum] : results) {
      snapshot.wait();
      EXPECT_EQ(snapshot.tensors[0].values<double>()[0], sum);
    }
    EXPECT_EQ(network->runs, 2) << "one plain run, one capture";
  }
}

TEST(DeviceExecutor, ATraceHasTheDevicesTimesOfBothLanes) {
  for (const Lane lane : {Lane::compute, Lane::exchanges}) {
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
