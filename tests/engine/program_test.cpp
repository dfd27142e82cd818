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

  void bind(Frame& frame, MemoryPool& pool) const {
    frame.bind(x, random_tensor(pool, {48, 32}, DType::f32, "x"));
    frame.bind(weight, random_tensor(pool, {32, 32}, DType::f32, "weight", 0.2));
    frame.bind(seed, random_tensor(pool, {48, 32}, DType::f32, "seed"));
    Tensor gradient(pool, {32, 32}, DType::f32);
    gradient.fill_zero();
    frame.bind(program.main_gradient(weight), gradient);
  }

  Program program;
  Builder builder;
  Value x, weight, output, seed;
};

TEST(Executor, MeasuredPeakIsThePlannedOne) {
  const SmallProgram small;
  for (const Kernels kernels : {Kernels::fast, Kernels::plain}) {
    MemoryPool pool;
    Runtime runtime(host_target(2, kernels), &pool);
    Frame frame(small.program);
    small.bind(frame, pool);
    const int64_t before = pool.in_use();
    const MemoryPlan plan = plan_memory(small.program, runtime.target());
    pool.reset_peak();
    Executor(small.program, runtime).run(frame);
    EXPECT_EQ(pool.peak_in_use() - before, plan.peak_bytes);
    EXPECT_GT(plan.peak_bytes, 48 * 32 * 4);
  }
}

TEST(Executor, EverythingButOutputsIsGivenBack) {
  const SmallProgram small;
  MemoryPool pool;
  Runtime runtime(host_target(2), &pool);
  Frame frame(small.program);
  small.bind(frame, pool);
  const int64_t before = pool.in_use();
  Executor(small.program, runtime).run(frame);
  EXPECT_EQ(pool.in_use() - before, 48 * 32 * 4);
}

TEST(Executor, ARunAgainTakesNoMoreAddresses) {
  const SmallProgram small;
  MemoryPool pool;
  Runtime runtime(host_target(2), &pool);
  const Executor executor(small.program, runtime);
  Frame frame(small.program);
  small.bind(frame, pool);
  executor.run(frame);
  executor.run(frame);
  const int64_t extent = pool.extent();
  for (int i = 0; i < 5; ++i) executor.run(frame);
  EXPECT_EQ(pool.extent(), extent);
}

TEST(Executor, NamesTheFirstValueThatIsNotFinite) {
  const SmallProgram small;
  MemoryPool pool;
  Runtime runtime(host_target(2), &pool);
  Frame frame(small.program);
  small.bind(frame, pool);
  frame[small.x].data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  Executor executor(small.program, runtime);
  executor.set_check_finite(true);
  try {
    executor.run(frame);
    FAIL() << "a NaN was not noticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("linear"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("forward"));
  }
}

TEST(Executor, RefusesATensorOfAnotherShapeAndAnUnboundInput) {
  const SmallProgram small;
  MemoryPool pool;
  Runtime runtime(host_target(1), &pool);
  Frame frame(small.program);
  EXPECT_THROW(frame.bind(small.x, random_tensor(pool, {47, 32}, DType::f32, "x")), InternalError);
  EXPECT_THROW(Executor(small.program, runtime).run(frame), InternalError);
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
  MemoryPool pool;
  Runtime runtime(host_target(1), &pool);
  Frame frame(small.program);
  small.bind(frame, pool);
  Executor executor(small.program, runtime);
  Trace trace(runtime);
  executor.set_trace(&trace);
  {
    const Trace::Step whole(&trace, 3);
    executor.run(frame);
    const Trace::Span span(&trace, "adamw", "optimizer", 64);
  }
  const StepTrace& step = trace.step();
  EXPECT_EQ(step.number, 3);
  ASSERT_EQ(step.events.size(), small.program.nodes().size() + 1);
  EXPECT_EQ(step.events[0].name, "linear");
  EXPECT_EQ(step.events.back().bytes, 64);
  EXPECT_EQ(step.events.back().phase, "step");
  double last = step.start;
  for (const TraceEvent& event : step.events) {
    EXPECT_GE(event.start, last);
    last = event.start + event.duration;
    // The products that ran do what the operation's cost says.
    double flops = 0;
    for (const GemmRuns& product : event.products) {
      flops += product.shape.flops() * static_cast<double>(product.runs);
    }
    EXPECT_DOUBLE_EQ(flops, event.flops) << event.name;
  }
  EXPECT_LE(last, step.start + step.duration);
  EXPECT_DOUBLE_EQ(step.events[0].flops, 2.0 * 48 * 32 * 32);
}

TEST(Trace, NothingIsRecordedWithoutOne) {
  const Trace::Step whole(nullptr, 1);
  const Trace::Span span(nullptr, "adamw", "optimizer");
  MemoryPool pool;
  Runtime runtime(host_target(1), &pool);
  Trace trace(runtime);
  const Trace::Step first(&trace, 1);
  EXPECT_THROW(Trace::Step(&trace, 2), InternalError);
}

}  // namespace
}  // namespace tessera
