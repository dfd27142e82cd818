#include "engine/busy_meter.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/executor.h"
#include "engine/sleep_operation.h"
#include "ops/host_target.h"
#include "program/builder.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kWork{20}, kPause{30};

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// A program that takes a known time of an emulated device.
struct SleepingDevice {
  explicit SleepingDevice(bool graphs) { executor.set_graphs(graphs); }

  Program program;
  Builder builder{program};
  Value x = builder.input("x", {{1}, DType::f32, {}});
  Value slept = [&] {
    const Value value =
        builder.apply_single(std::make_shared<testing::Sleep>("sleep", Lane::compute, kWork), {x});
    builder.output(value);
    return value;
  }();
  Action whole{.segment = Segment::whole};
  Runtime runtime{[] {
    Target target = host_target(1);
    target.device = Device::emulated;
    return target;
  }()};
  Executor executor{{&program}, std::span(&whole, 1), runtime};
};

TEST(DeviceBusyMeter, TellsWorkFromWaitingForTheHost) {
  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "graphs" : "no graphs");
    SleepingDevice device(graphs);
    BusyMeter meter(*device.runtime.accelerator());
    device.executor.set_busy_meter(&meter);
    constexpr int kRuns = 3;  // plain, captured, launched
    for (int run = 0; run < kRuns; ++run) {
      if (run > 0) std::this_thread::sleep_for(kPause);
      device.executor.run(device.whole);
      device.executor.synchronize();
    }
    const BusyTimes times = meter.finish();
    EXPECT_GE(times.busy_seconds, kRuns * seconds(kWork));
    EXPECT_GE(times.whole_seconds - times.busy_seconds, (kRuns - 1) * seconds(kPause));
    EXPECT_GT(times.idle_share(), 0);
    EXPECT_LT(times.idle_share(), 1);
  }
}

TEST(DeviceBusyMeter, FindsNoPauseWhereTheHostIsAhead) {
  SleepingDevice device(true);
  BusyMeter meter(*device.runtime.accelerator());
  device.executor.set_busy_meter(&meter);
  for (int run = 0; run < 3; ++run) device.executor.run(device.whole);
  const BusyTimes times = meter.finish();
  EXPECT_GE(times.busy_seconds, 3 * seconds(kWork));
  EXPECT_GE(times.whole_seconds, times.busy_seconds);
  EXPECT_EQ(meter.finish().whole_seconds, 0) << "every measurement begins anew";
}

TEST(DeviceBusyMeter, IsAskedNoMoreOnceItIsTakenAway) {
  SleepingDevice device(true);
  BusyMeter meter(*device.runtime.accelerator());
  device.executor.set_busy_meter(&meter);
  device.executor.set_busy_meter(nullptr);
  device.executor.run(device.whole);
  EXPECT_EQ(meter.finish().busy_seconds, 0);
}

}  // namespace
}  // namespace tessera
