#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "ops/linear/linear.h"
#include "support/gradient_check.h"

namespace tessera {
namespace {

using testing::ProgramRun;
using testing::random_tensor;

/// Two linears and a sum: a value that fans out, a parameter that is used twice, a dead result.
struct SmallProgram {
  SmallProgram() : builder(program) {
    x = builder.input("x", {{48, 32}, DType::f32, {}});
    weight = builder.parameter("weight", {{32, 32}, DType::f32, {}});
    const Value first = linear(builder, x, weight);
    scale(builder, first, 3.0);
    const Value second = linear(builder, first, weight);
    const Value parts[] = {first, second};
    output = add(builder, parts, DType::f32);
    builder.output(output);
    seed = builder.input("seed", builder.spec(output));
    const Seed seeds[] = {{output, seed}};
    differentiate(builder, seeds);
  }

  void bind(ProgramRun& frame) const {
    frame.bind(x, random_tensor({48, 32}, DType::f32, "x"));
    frame.bind(weight, random_tensor({32, 32}, DType::f32, "weight", 0.2));
    frame.bind(seed, random_tensor({48, 32}, DType::f32, "seed"));
    Tensor gradient({32, 32}, DType::f32);
    gradient.fill_zero();
    frame.bind(program.main_gradient(weight), gradient);
  }

  Program program;
  Builder builder;
  Value x, weight, output, seed;
};

TEST(Executor, RunsAgainInTheSameMemory) {
  const SmallProgram small;
  Runtime runtime(host_target(2));
  ProgramRun frame(small.program, runtime);
  small.bind(frame);
  frame.run();
  const Tensor& first = frame[small.output];
  const std::vector<float> values(first.values<float>().begin(), first.values<float>().end());
  const std::byte* const address = frame.executor().tensor(small.output).raw();
  for (int i = 0; i < 3; ++i) frame.run();
  EXPECT_TRUE(std::ranges::equal(frame[small.output].values<float>(), values));
  EXPECT_EQ(frame.executor().tensor(small.output).raw(), address);
}

TEST(Executor, NamesTheFirstValueThatIsNotFinite) {
  const SmallProgram small;
  Runtime runtime(host_target(2));
  ProgramRun frame(small.program, runtime);
  small.bind(frame);
  frame[small.x].data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  FiniteCheck check;
  frame.executor().set_finite_check(&check);
  frame.run();
  ASSERT_TRUE(check.message.has_value()) << "a NaN was not noticed";
  EXPECT_THAT(*check.message, ::testing::HasSubstr("made by linear in the forward pass"));
  EXPECT_LT(check.nodes, std::ssize(small.program.nodes()));
}

TEST(Executor, RefusesATensorOfAnotherShapeAndAnUnboundInput) {
  const SmallProgram small;
  Runtime runtime(host_target(1));
  ProgramRun frame(small.program, runtime);
  EXPECT_THROW(frame.bind(small.x, random_tensor({47, 32}, DType::f32, "x")), InternalError);
  EXPECT_THROW(frame.run(), InternalError);
}

TEST(Differentiate, IntegerInputsAndUnusedResultsGetNoGradient) {
  const SmallProgram small;
  int scales = 0;
  for (const Node& node : small.program.nodes()) scales += node.operation->name() == "scale";
  EXPECT_EQ(scales, 1) << "the dead result was differentiated";
  EXPECT_FALSE(bool(small.program.main_gradient(small.x)));
}

TEST(Trace, RecordsEveryNodeWithItsProducts) {
  const SmallProgram small;
  Runtime runtime(host_target(1));
  ProgramRun frame(small.program, runtime);
  small.bind(frame);
  Trace trace(runtime);
  frame.executor().set_trace(&trace);
  {
    const Trace::Step whole(&trace, 3);
    frame.run();
    const Trace::Span span(&trace, "next_batches", "data");
  }
  const StepTrace& step = trace.step();
  EXPECT_EQ(step.number, 3);
  ASSERT_EQ(step.events.size(), small.program.nodes().size() + 1);
  EXPECT_EQ(step.events[0].name, "linear");
  EXPECT_EQ(step.events.back().name, "next_batches");
  EXPECT_EQ(step.events.back().phase, "step");
  double last = step.start;
  for (const TraceEvent& event : step.events) {
    EXPECT_GE(event.start, last);
    last = event.start + event.duration;
    // The products that ran do what the operation's cost says.
    double flops = 0;
    for (const auto& [product, runs] : event.products) {
      flops += step.products[static_cast<size_t>(product)].flops() * static_cast<double>(runs);
    }
    EXPECT_DOUBLE_EQ(flops, event.flops) << event.name;
  }
  EXPECT_LE(last, step.start + step.duration);
  EXPECT_DOUBLE_EQ(step.events[0].flops, 2.0 * 48 * 32 * 32);
}

TEST(Trace, TakesItsTimesFromTheClockThatItIsGiven) {
  Runtime runtime(host_target(1));
  double seconds = 100;
  Trace trace(runtime, [&] { return seconds; });
  {
    const Trace::Step whole(&trace, 1);
    seconds += 2;
    {
      const Trace::Span span(&trace, "next_batches", "data");
      seconds += 0.5;
    }
    trace.add({.name = "all_reduce", .lane = Lane::exchanges, .start = 1.0, .duration = 1.5});
    seconds += 1;
  }
  const StepTrace& step = trace.step();
  EXPECT_EQ(step.duration, 3.5);
  ASSERT_EQ(step.events.size(), 2U);
  EXPECT_EQ(step.events[0].start, 2);
  EXPECT_EQ(step.events[0].duration, 0.5);
  EXPECT_EQ(step.events[0].lane, Lane::compute);
  EXPECT_EQ(step.events[1].start, 1.0);
  EXPECT_EQ(step.events[1].lane, Lane::exchanges);
}

/// The clock runs on while the trace works, and that time is in no event.
TEST(Trace, AddsUpTheTimeOfItsOwnWork) {
  const SmallProgram small;
  Runtime runtime(host_target(1));
  ProgramRun frame(small.program, runtime);
  small.bind(frame);
  double seconds = 0;
  Trace trace(runtime, [&] { return ++seconds; });
  frame.executor().set_trace(&trace);
  {
    const Trace::Step whole(&trace, 1);
    frame.run();
  }
  // A node reads the clock before and after it, and once more when it is recorded.
  const StepTrace& step = trace.step();
  const auto nodes = static_cast<double>(small.program.nodes().size());
  EXPECT_EQ(step.recording_seconds, nodes);
  EXPECT_EQ(step.duration, 3 * nodes + 1);
  EXPECT_EQ(trace.begin(), 1);
  double next = step.start + 1;
  for (const TraceEvent& event : step.events) {
    EXPECT_EQ(event.start, next) << event.name;
    EXPECT_EQ(event.duration, 1) << event.name;
    next += 3;
  }
}

TEST(Trace, NothingIsRecordedWithoutOne) {
  const Trace::Step whole(nullptr, 1);
  const Trace::Span span(nullptr, "next_batches", "data");
  Runtime runtime(host_target(1));
  Trace trace(runtime);
  const Trace::Step first(&trace, 1);
  EXPECT_THROW(Trace::Step(&trace, 2), InternalError);
}

}  // namespace
}  // namespace tessera
