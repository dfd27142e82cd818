#include "engine/memory_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "engine/executor.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "ops/linear/linear.h"
#include "ops/update/kept_values.h"
#include "support/gradient_check.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::random_tensor;

constexpr Action kForward{.segment = Segment::forward};
constexpr Action kBackward{.segment = Segment::backward};

/// Some linears one behind the other, each with a weight of its own.
struct Chain {
  explicit Chain(int length = 3) : builder(program) {
    x = builder.input("x", {{48, 32}, DType::f32, {}});
    Value value = x;
    for (int i = 0; i < length; ++i) {
      weights.push_back(builder.parameter(fmt::format("w{}", i), {{32, 32}, DType::f32, {}}));
      value = scale(builder, linear(builder, value, weights.back()), 0.5);
    }
    output = value;
    builder.output(output);
    seed = builder.input("seed", builder.spec(output));
    const Seed seeds[] = {{output, seed}};
    differentiate(builder, seeds);
  }

  Program program;
  Builder builder;
  Value x, output, seed;
  std::vector<Value> weights;
};

MemoryPlan plan_of(const Program& program, std::span<const Action> actions) {
  const Program* const programs[] = {&program};
  return plan_memory(programs, actions, host_target(2));
}

/// What a chain leaves in its weights' gradients when micro-batches run in this order.
std::vector<std::vector<float>> gradients_after(const Chain& chain,
                                                const std::vector<Action>& actions) {
  Runtime runtime(host_target(2));
  Executor executor({&chain.program}, actions, runtime);
  for (const Value weight : chain.weights) {
    executor.tensor(weight).copy_from(
        random_tensor({32, 32}, DType::f32, chain.program.info(weight).name, 0.3));
  }
  for (const Action& action : actions) {
    for (const Value input : executor.inputs(action.segment)) {
      const std::string name =
          fmt::format("{}{}", chain.program.info(input).name, action.micro_batch);
      executor.tensor(input, 0, action.micro_batch)
          .copy_from(random_tensor({48, 32}, DType::f32, name));
    }
    executor.run(action);
  }
  std::vector<std::vector<float>> result;
  for (const Value weight : chain.weights) {
    const auto values = executor.tensor(chain.program.main_gradient(weight)).values<float>();
    result.emplace_back(values.begin(), values.end());
  }
  return result;
}

TEST(MemoryPlan, SeveralFramesInFlightGiveTheBitsOfOne) {
  const Chain chain;
  std::vector<Action> one, three;
  for (int m = 0; m < 5; ++m) {
    one.insert(one.end(), {{Segment::forward, 0, m}, {Segment::backward, 0, m}});
  }
  for (int m = 0; m < 5 + 2; ++m) {
    if (m < 5) three.push_back({Segment::forward, 0, m});
    if (m >= 2) three.push_back({Segment::backward, 0, m - 2});
  }
  const MemoryPlan plan = plan_of(chain.program, three);
  EXPECT_EQ(plan.programs[0].values.size(), 3U) << "frames";
  EXPECT_EQ(plan.programs[0].frames.at(3), plan.programs[0].frames.at(0)) << "used again";
  const MemoryPlan single = plan_of(chain.program, one);
  EXPECT_EQ(single.programs[0].values.size(), 1U);
  // Each further frame takes what a frame saves, and nothing else.
  EXPECT_EQ(plan.arena_bytes, single.arena_bytes + 2 * plan.programs[0].saved_bytes);
  EXPECT_EQ(gradients_after(chain, three), gradients_after(chain, one));
}

TEST(MemoryPlan, WhatIsKeptHasOnePlaceInAllProgramsAndFrames) {
  const Chain chain;
  Program start;
  Builder builder(start);
  std::vector<Value> gradients;
  for (size_t i = 0; i < chain.weights.size(); ++i) {
    const Value weight = builder.parameter(fmt::format("w{}", i), {{32, 32}, DType::f32, {}});
    gradients.push_back(builder.main_gradient(weight));
  }
  zero(builder, gradients);
  const Program* const programs[] = {&chain.program, &start};
  const std::vector<Action> actions{{.segment = Segment::whole, .program = 1}, kForward, kBackward};
  const MemoryPlan plan = plan_memory(programs, actions, host_target(1));
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Value gradient = chain.program.main_gradient(chain.weights[i]);
    EXPECT_EQ(plan.programs[0].values[0][static_cast<size_t>(gradient.id)],
              plan.programs[1].values[0][static_cast<size_t>(gradients[i].id)]);
  }
  EXPECT_EQ(plan.kept_bytes, 6 * 32 * 32 * 4);

  Program other;
  Builder wrong(other);
  const Value narrow = wrong.parameter("w0", {{16}, DType::f32, {}});
  const Value values[] = {wrong.main_gradient(narrow)};
  zero(wrong, values);
  const Program* const disagreeing[] = {&chain.program, &other};
  EXPECT_THROW(plan_memory(disagreeing, actions, host_target(1)), InternalError);
}

TEST(MemoryPlan, WhatIsGivenHasNoPlace) {
  const Chain chain;
  const Program* const programs[] = {&chain.program};
  const std::vector<Action> actions{kForward, kBackward};
  const GivenTensors given{{"w1", Tensor({32, 32}, DType::f32)}};
  const MemoryPlan plan = plan_memory(programs, actions, host_target(1), given);
  EXPECT_EQ(plan.kept_bytes, 5 * 32 * 32 * 4);
  EXPECT_EQ(plan.programs[0].values[0][static_cast<size_t>(chain.weights[1].id)], -1);
  Runtime runtime(host_target(1));
  const Executor executor({&chain.program}, plan, runtime, given);
  EXPECT_EQ(executor.tensor(chain.weights[1]).raw(), given.at("w1").raw());
  const GivenTensors wrong{{"w1", Tensor({31, 32}, DType::f32)}};
  EXPECT_THROW(Executor({&chain.program}, plan, runtime, wrong), InternalError);
}

TEST(MemoryPlan, RefusesActionsThatDoNotRunAProgram) {
  const Chain chain;
  const auto refused = [&](std::vector<Action> actions) {
    EXPECT_THROW(plan_of(chain.program, actions), InternalError);
  };
  refused({});
  refused({kForward});
  refused({kForward, kForward, kBackward});
  refused({kForward, kBackward, {Segment::forward, 0, 1}});
  refused({kForward, kBackward, {Segment::whole, 0, 1}});
  refused({kForward, {.segment = Segment::input_gradients}});
  refused({{.segment = Segment::whole, .program = 1}});
  EXPECT_NO_THROW(plan_of(chain.program, std::vector{Action{}}));
}

TEST(MemoryPlan, RowsThatAnExchangeBringsHaveARegionWithABound) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{64, 32}, DType::f32, {}});
  const Value received = scale(builder, x, 1.0);  // stands for an exchange
  builder.set_rows(received, {.expected = 16, .key = "parallel.expert_rows"});
  const Value weight = builder.parameter("w", {{32, 32}, DType::f32, {}});
  builder.output(linear(builder, received, weight));
  const MemoryPlan plan = plan_of(program, std::vector{Action{}});
  EXPECT_EQ(plan.rows.bound_bytes, 64 * 32 * 4);
  EXPECT_EQ(plan.rows.expected_bytes, 16 * 32 * 4);
  EXPECT_EQ(plan.rows.offset + plan.rows.bound_bytes, plan.arena_bytes);
  EXPECT_EQ(plan.programs[0].values[0][static_cast<size_t>(received.id)], plan.rows.offset);
}

TEST(Executor, RefusesWhatWasNotPlanned) {
  const Chain chain;
  Runtime runtime(host_target(1));
  const std::vector<Action> actions{kForward, kBackward};
  Executor executor({&chain.program}, actions, runtime);
  EXPECT_THROW(executor.run({Segment::forward, 0, 1}), InternalError);
  EXPECT_THROW(executor.run({.segment = Segment::whole}), InternalError);
  EXPECT_THROW(executor.run({Segment::forward, 1, 0}), InternalError);
  EXPECT_THROW(executor.tensor("nothing"), InternalError);
}

TEST(Executor, RefusesActionsWhoseFramesThePlanGivesToOthers) {
  const Chain chain;
  Runtime runtime(host_target(1));
  const auto refuses_last = [&](const std::vector<Action>& planned, std::vector<Action> run) {
    Executor executor({&chain.program}, planned, runtime);
    const Action last = run.back();
    run.pop_back();
    for (const Action& action : run) executor.run(action);
    EXPECT_THROW(executor.run(last), InternalError);
  };
  const std::vector<Action> one{
      kForward, kBackward, {Segment::forward, 0, 1}, {Segment::backward, 0, 1}};
  refuses_last(one, {kBackward});
  refuses_last(one, {kForward, {Segment::backward, 0, 1}});
  refuses_last(one, {kForward, {Segment::forward, 0, 1}, kBackward});
  refuses_last(one, {kForward, kBackward, kBackward});
  // Two in flight: the first one's backward pass may not come after the second one's, whose values
  // have gone by then, and neither may run without the other's forward pass.
  const std::vector<Action> two{
      kForward, {Segment::forward, 0, 1}, kBackward, {Segment::backward, 0, 1}};
  refuses_last(two, {kForward, {Segment::forward, 0, 1}, {Segment::backward, 0, 1}});
  refuses_last(two, {kForward, kBackward});
}

TEST(Executor, AFrameMayBeginAnew) {
  const Chain chain;
  Runtime runtime(host_target(1));
  const std::vector<Action> actions{kForward, kBackward};
  Executor executor({&chain.program}, actions, runtime);
  executor.run(kForward);
  executor.run(kForward);
  executor.run(kBackward);
  executor.run(kForward);
  EXPECT_NO_THROW(executor.run(kBackward));
}

TEST(Executor, AnotherProgramMayNotRunWhereValuesOfOneWait) {
  const Chain chain, other;
  Runtime runtime(host_target(1));
  const std::vector<Action> actions{kForward, kBackward, {.segment = Segment::whole, .program = 1}};
  Executor executor({&chain.program, &other.program}, actions, runtime);
  executor.run(kForward);
  EXPECT_THROW(executor.run(actions[2]), InternalError);
  executor.run(kForward);
  executor.run(kBackward);
  EXPECT_NO_THROW(executor.run(actions[2]));
}

TEST(Executor, OfADevicesTargetHasTensorsOfTheDevice) {
  const Chain chain;
  Target target = host_target(1);
  target.device = Device::emulated;
  Runtime runtime(target);
  const std::vector<Action> actions{kForward, kBackward};
  Executor executor({&chain.program}, actions, runtime);
  const Tensor& weight = executor.tensor(chain.weights[0]);
  EXPECT_EQ(weight.device(), Device::emulated);
  EXPECT_THROW(weight.data<float>(), InternalError);
  std::vector<float> values(32 * 32, 3.5f), back(32 * 32);
  upload(std::as_bytes(std::span(values)), weight);
  readback(weight, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, values);
}

TEST(Builder, RefusesAnOutputThatIsNoValue) {
  Program program;
  Builder builder(program);
  EXPECT_THROW(builder.output(Value{}), InternalError);
  EXPECT_THROW(builder.keep(Value{}, Keep::block), InternalError);
  EXPECT_THROW(builder.name(Value{3}, "third"), InternalError);
}

TEST(Segments, ABackwardPassIsWhatTheBoundaryNeedsAndTheRest) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{8, 4}, DType::f64, {}});
  const Value first = builder.parameter("first", {{4, 4}, DType::f64, {}});
  const Value second = builder.parameter("second", {{4, 4}, DType::f64, {}});
  const Value y = linear(builder, linear(builder, x, first), second);
  builder.output(y);
  const Seed seeds[] = {{y, builder.input("seed", builder.spec(y))}};
  const Value wanted[] = {x};
  const std::vector<Value> gradients = differentiate(builder, seeds, wanted);
  ASSERT_TRUE(bool(gradients[0]));
  builder.output(gradients[0]);
  const auto names = [&](Segment segment) {
    std::vector<std::string> result;
    for (const int node : segment_nodes(program, segment)) {
      result.emplace_back(program.nodes()[static_cast<size_t>(node)].operation->name());
    }
    return result;
  };
  EXPECT_EQ(names(Segment::input_gradients),
            (std::vector<std::string>{"linear_input_gradient", "linear_input_gradient"}));
  EXPECT_EQ(names(Segment::weight_gradients),
            (std::vector<std::string>{"linear_weight_gradient", "linear_weight_gradient"}));
  // Each input's gradient stands before its weight's.
  EXPECT_EQ(names(Segment::backward),
            (std::vector<std::string>{"linear_input_gradient", "linear_weight_gradient",
                                      "linear_input_gradient", "linear_weight_gradient"}));
}

}  // namespace
}  // namespace tessera
