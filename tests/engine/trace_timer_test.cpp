#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "device/emulated_accelerator.h"
#include "engine/executor.h"
#include "engine/sleep_operation.h"
#include "ops/host_target.h"
#include "program/builder.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kKnown{20};

TEST(DeviceTraceTimer, GivesEachOperationTheTimeOfItsLane) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{1}, DType::f32, {}});
  const auto add = [&](const char* name, Lane lane, std::chrono::milliseconds time, Value from) {
    return builder.apply_single(std::make_shared<testing::Sleep>(name, lane, time), {from});
  };
  const Value computed = add("compute", Lane::compute, kKnown, x);
  const Value sent = add("send", Lane::exchanges, kKnown, computed);
  const Value beside = add("beside", Lane::compute, kKnown, computed);
  builder.output(beside);
  builder.output(add("after", Lane::compute, {}, sent));

  Target target = host_target(1);
  target.device = Device::emulated;
  Runtime runtime(target);
  constexpr Action kWhole[] = {{.segment = Segment::whole}};
  Executor executor({&program}, kWhole, runtime);
  Trace trace(runtime);
  {
    const Trace::Step step(&trace, 1);
    executor.set_trace(&trace);
    executor.run(kWhole[0]);
    executor.set_trace(nullptr);
  }
  const std::vector<TraceEvent>& events = trace.step().events;
  ASSERT_EQ(events.size(), 4U);
  const double known = std::chrono::duration<double>(kKnown).count();
  const auto end = [&](size_t i) { return events[i].start + events[i].duration; };
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(events[i].duration, known) << events[i].name;
    EXPECT_EQ(events[i].lane, i == 1 ? Lane::exchanges : Lane::compute);
  }
  // What waits for another lane begins when that is done, and the wait is not its own time.
  constexpr double kResolution = 1e-6;
  EXPECT_GE(events[0].start, 0);
  EXPECT_GE(events[1].start, end(0) - kResolution);
  EXPECT_GE(events[2].start, end(0) - kResolution);
  EXPECT_GE(events[3].start, end(1) - kResolution);
  EXPECT_GE(events[3].start, end(2) - kResolution);
  // The step has them all, on the same clock.
  EXPECT_GE(trace.step().duration, 2 * known);
  EXPECT_LE(end(3), trace.step().start + trace.step().duration + kResolution);
}

TEST(DeviceTraceTimer, TimesPiecesWithinAPiece) {
  Target target = host_target(1);
  target.device = Device::emulated;
  Runtime runtime(target);
  Trace trace(runtime);
  const std::shared_ptr<Stream> stream = runtime.accelerator()->make_stream();
  TraceTimer timer(*runtime.accelerator(), *stream, trace);
  EXPECT_GT(trace.step().clock_uncertainty, 0);
  double whole_start = 0, whole_end = 0;
  timer.begin(*stream);
  for (const char* name : {"first", "second"}) {
    timer.begin(*stream);
    timer.end(*stream, {.name = name});
  }
  timer.end(*stream, [&](double start, double duration) {
    whole_start = start;
    whole_end = start + duration;
  });
  timer.finish();
  const std::vector<TraceEvent>& events = trace.step().events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].name, "first");
  EXPECT_LE(whole_start, events[0].start);
  EXPECT_LE(events[0].start + events[0].duration, events[1].start);
  EXPECT_LE(events[1].start + events[1].duration, whole_end);
  EXPECT_THROW(timer.end(*stream, {.name = "none"}), InternalError);
}

}  // namespace
}  // namespace tessera
