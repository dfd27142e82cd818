#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "engine/pipeline_chunk.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

using testing::float_values;
using ::testing::HasSubstr;
using testing::List;
using testing::PipelineChunk;

Action forward(int micro_batch) { return {Segment::forward, 0, micro_batch}; }
Action backward(int micro_batch) { return {Segment::backward, 0, micro_batch}; }
Hold begin_hold(Value value, int micro_batch) { return {0, micro_batch, {value}, true}; }
Hold end_hold(Value value, int micro_batch) { return {0, micro_batch, {value}, false}; }

/// The message of the InternalError that a function throws; empty if it throws none.
template <typename Function>
std::string internal_error_of(Function&& function) {
  try {
    function();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

MemoryPlan plan_of_list(const PipelineChunk& chunk, const List& list) {
  const Program* const programs[] = {&chunk.program};
  return plan_memory(programs, list, host_target(1));
}

/// An executor of one chunk whose weights are set.
struct ChunkRun {
  ChunkRun(const PipelineChunk& chunk, const List& list)
      : runtime(host_target(1)), executor({&chunk.program}, plan_of_list(chunk, list), runtime) {
    chunk.set_weights(executor, 0);
  }
  void follow(const ListEntry& entry) {
    if (const auto* const action = std::get_if<Action>(&entry)) return executor.run(*action);
    executor.hold(std::get<Hold>(entry));
  }

  Runtime runtime;
  Executor executor;
};

/// What the first micro-batch's forward pass sends, read after the second one's.
std::vector<float> sent_after_another_forward(const PipelineChunk& chunk, const List& list) {
  ChunkRun run(chunk, list);
  for (const ListEntry& entry : list) {
    if (entry == ListEntry(end_hold(chunk.y, 0)) || entry == ListEntry(backward(0))) break;
    if (const auto* const action = std::get_if<Action>(&entry)) {
      chunk.write(run.executor, chunk.x, 0, action->micro_batch);
    }
    run.follow(entry);
  }
  return float_values(run.executor.tensor(chunk.y, 0, 0));
}

TEST(Hold, AnOutputSurvivesAnActionOfAnotherFrame) {
  const PipelineChunk chunk;
  const List plain{forward(0), forward(1), backward(0), backward(1)};
  const List held{forward(0), begin_hold(chunk.y, 0), forward(1), end_hold(chunk.y, 0), backward(0),
                  backward(1)};
  ChunkRun alone(chunk, plain);
  chunk.write(alone.executor, chunk.x, 0, 0);
  alone.executor.run(forward(0));
  const std::vector<float> sent = float_values(alone.executor.tensor(chunk.y, 0, 0));
  EXPECT_EQ(sent_after_another_forward(chunk, held), sent);
  EXPECT_NE(sent_after_another_forward(chunk, plain), sent) << "a hold is needed";
}

TEST(Hold, OfAnInputBeginsAFrameBeforeItsFirstSegment) {
  const PipelineChunk chunk;
  const List plain{forward(0), backward(0), forward(1), backward(1)};
  const List early{forward(0),  begin_hold(chunk.x, 1),
                   backward(0), end_hold(chunk.x, 1),
                   forward(1),  backward(1)};
  EXPECT_EQ(plan_of_list(chunk, plain).programs[0].frames, (std::map<int, int>{{0, 0}, {1, 0}}));
  EXPECT_EQ(plan_of_list(chunk, early).programs[0].frames, (std::map<int, int>{{0, 0}, {1, 1}}));
  ChunkRun run(chunk, early);
  chunk.write(run.executor, chunk.x, 0, 0);
  run.follow(early[0]);
  run.follow(early[1]);
  chunk.write(run.executor, chunk.x, 0, 1);
  const std::vector<float> received = float_values(run.executor.tensor(chunk.x, 0, 1));
  chunk.write(run.executor, chunk.seed, 0, 0);
  run.follow(early[2]);
  EXPECT_EQ(float_values(run.executor.tensor(chunk.x, 0, 1)), received);
}

TEST(Hold, OfAnOutputKeepsTheFrameAfterItsLastSegment) {
  const PipelineChunk chunk;
  const List during{forward(0), backward(0),           begin_hold(chunk.dx, 0),
                    forward(1), end_hold(chunk.dx, 0), backward(1)};
  const List before{forward(0), backward(0), begin_hold(chunk.dx, 0), end_hold(chunk.dx, 0),
                    forward(1), backward(1)};
  EXPECT_EQ(plan_of_list(chunk, during).programs[0].frames, (std::map<int, int>{{0, 0}, {1, 1}}));
  EXPECT_EQ(plan_of_list(chunk, before).programs[0].frames, (std::map<int, int>{{0, 0}, {1, 0}}));
}

/// Before the next action both are gone, but a gradient arrives while the activations are sent.
TEST(Hold, MessagesThatAreUnderWayAtOnceHaveMemoryOfTheirOwn) {
  const PipelineChunk chunk;
  const List list{forward(0),           begin_hold(chunk.y, 0),  begin_hold(chunk.seed, 0),
                  end_hold(chunk.y, 0), end_hold(chunk.seed, 0), backward(0)};
  const std::vector<int64_t> offsets = plan_of_list(chunk, list).programs[0].values[0];
  EXPECT_NE(offsets[static_cast<size_t>(chunk.y.id)], offsets[static_cast<size_t>(chunk.seed.id)]);
}

/// The second of three stages, with the messages as the schedules place them: a receive is posted
/// one action ahead.
TEST(Hold, OneForwardOneBackwardHasAFrameMoreThanItsMicroBatchesInFlight) {
  const PipelineChunk chunk;
  const List actions{forward(0),  forward(1), backward(0), forward(2),
                     backward(1), forward(3), backward(2), backward(3)};
  EXPECT_EQ(plan_of_list(chunk, actions).programs[0].values.size(), 2U);
  // `awaits` says how many actions later a send is awaited.
  const auto frames = [&](size_t awaits) {
    List list;
    const auto action = [&](size_t index) { return std::get<Action>(actions[index]); };
    const auto input = [&](size_t index) {
      return action(index).segment == Segment::forward ? chunk.x : chunk.seed;
    };
    const auto output = [&](size_t index) {
      return action(index).segment == Segment::forward ? chunk.y : chunk.dx;
    };
    list.emplace_back(begin_hold(input(0), 0));
    for (size_t i = 0; i < actions.size() + awaits; ++i) {
      if (i + 1 < actions.size())
        list.emplace_back(begin_hold(input(i + 1), action(i + 1).micro_batch));
      if (i < actions.size()) list.emplace_back(end_hold(input(i), action(i).micro_batch));
      if (i >= awaits)
        list.emplace_back(end_hold(output(i - awaits), action(i - awaits).micro_batch));
      if (i >= actions.size()) continue;
      list.emplace_back(actions[i]);
      list.emplace_back(begin_hold(output(i), action(i).micro_batch));
    }
    return plan_of_list(chunk, list).programs[0].frames;
  };
  EXPECT_EQ(frames(1), (std::map<int, int>{{0, 0}, {1, 1}, {2, 2}, {3, 0}}));
  // The gradient of micro-batch 0 is still sent when the last input is awaited.
  EXPECT_EQ(frames(2), (std::map<int, int>{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
}

TEST(Hold, ThePeakMayBeWhereNothingRuns) {
  const PipelineChunk chunk(1);  // so that the messages are most of the memory
  const int64_t message = chunk.program.spec(chunk.x).bytes();
  const List plain{forward(0), backward(0), forward(1), backward(1), forward(2), backward(2)};
  List received = plain;
  const Hold all[] = {begin_hold(chunk.x, 1), begin_hold(chunk.seed, 1), begin_hold(chunk.x, 2),
                      begin_hold(chunk.seed, 2)};
  received.insert(received.begin(), std::begin(all), std::end(all));
  for (const Hold& hold : all)
    received.insert(received.begin() + 4, end_hold(hold.values[0], hold.micro_batch));
  const MemoryPlan plan = plan_of_list(chunk, plain);
  EXPECT_GE(plan.peak_node, 0);
  const MemoryPlan waiting = plan_of_list(chunk, received);
  EXPECT_EQ(waiting.live_bytes, plan.live_bytes + 4 * message) << "beside the first micro-batch";
  EXPECT_EQ(waiting.peak_node, plan.peak_node);
  // What is sent has gone before the next action runs, and by then everything else has come.
  constexpr int kMicroBatches = 40;
  List sent;
  const auto add = [&](const auto& entry_of) {
    for (int m = 0; m < kMicroBatches; ++m) sent.emplace_back(entry_of(m));
  };
  for (int m = 0; m < kMicroBatches; ++m) {
    sent.insert(sent.end(), {forward(m), begin_hold(chunk.y, m)});
  }
  add([&](int m) { return begin_hold(chunk.seed, m); });
  add([&](int m) { return end_hold(chunk.y, m); });
  add([&](int m) { return end_hold(chunk.seed, m); });
  add(backward);
  const MemoryPlan between = plan_of_list(chunk, sent);
  EXPECT_EQ(between.peak_node, -1);
  EXPECT_EQ(between.peak_program, -1);
  EXPECT_EQ(between.live_bytes, between.kept_bytes + 3 * kMicroBatches * message)
      << "what is saved, sent and received";
}

TEST(Hold, RowsThatAreKnownAtRunTimeAreHeldInTheirRegion) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{64, 32}, DType::f32, {}});
  const Value rows = scale(builder, x, 1.0);  // stands for an exchange
  builder.set_rows(rows, {.expected = 16, .key = "parallel.expert_rows"});
  builder.output(rows);
  const Program* const programs[] = {&program};
  const auto plan_where = [&](bool held) {
    List list;
    for (int m = 0; m < 3; ++m) {
      list.emplace_back(Action{Segment::whole, 0, m});
      if (held) list.emplace_back(begin_hold(rows, m));
    }
    for (int m = 0; held && m < 3; ++m) list.emplace_back(end_hold(rows, m));
    return plan_memory(programs, list, host_target(1));
  };
  const MemoryPlan one = plan_where(false), three = plan_where(true);
  EXPECT_EQ(one.rows.bound_bytes, 64 * 32 * 4);
  EXPECT_EQ(three.rows.bound_bytes, 3 * one.rows.bound_bytes);
  EXPECT_EQ(three.rows.expected_bytes, 3 * one.rows.expected_bytes);
  EXPECT_EQ(three.live_bytes, one.live_bytes + 2 * one.rows.bound_bytes);
}

/// The error of a plan for a list.
std::string refusal(const PipelineChunk& chunk, const List& list) {
  return internal_error_of([&] { plan_of_list(chunk, list); });
}

TEST(Hold, IsRefusedByThePlanWhereTheValueHasNoMemory) {
  const PipelineChunk chunk;
  const Value x = chunk.x, y = chunk.y;
  EXPECT_THAT(
      refusal(chunk, {begin_hold(x, 0), begin_hold(x, 0), end_hold(x, 0), forward(0), backward(0)}),
      HasSubstr("x of micro-batch 0 of program 0 is held already"));
  EXPECT_THAT(refusal(chunk, {begin_hold(x, 0), end_hold(x, 0), begin_hold(x, 0), end_hold(x, 0),
                              forward(0), backward(0)}),
              HasSubstr("is held already"))
      << "the contents have come";
  EXPECT_THAT(
      refusal(chunk, {begin_hold(x, 0), end_hold(x, 0), end_hold(x, 0), forward(0), backward(0)}),
      HasSubstr("x of micro-batch 0 of program 0 is not held"));
  EXPECT_THAT(refusal(chunk, {end_hold(x, 0), forward(0), backward(0)}), HasSubstr("is not held"));
  EXPECT_THAT(refusal(chunk, {begin_hold(x, 0), forward(0), backward(0)}),
              HasSubstr("uses x, which is still held"));
  EXPECT_THAT(refusal(chunk, {forward(0), begin_hold(x, 0), end_hold(x, 0), backward(0)}),
              HasSubstr("cannot be held here"))
      << "it is used already";
  EXPECT_THAT(refusal(chunk, {begin_hold(y, 0), forward(0), end_hold(y, 0), backward(0)}),
              HasSubstr("cannot be held here"))
      << "it is not made yet";
  EXPECT_THAT(refusal(chunk, {forward(0), forward(1), begin_hold(y, 0), end_hold(y, 0), backward(0),
                              backward(1)}),
              HasSubstr("cannot be held here"))
      << "an action may have taken its memory";
  EXPECT_THAT(refusal(chunk, {forward(0), begin_hold(chunk.seed, 0), begin_hold(y, 0),
                              end_hold(y, 0), end_hold(chunk.seed, 0), backward(0)}),
              HasSubstr("cannot be held here"))
      << "a hold of inputs may have taken its memory";
  EXPECT_THAT(refusal(chunk, {forward(0), backward(0), begin_hold(y, 0), end_hold(y, 0)}),
              HasSubstr("cannot be held here"))
      << "it is an output of an earlier segment";
  EXPECT_THAT(refusal(chunk, {forward(0), begin_hold(chunk.inner, 0), end_hold(chunk.inner, 0),
                              backward(0)}),
              HasSubstr("cannot be held here"))
      << "it is no output";
  EXPECT_THAT(refusal(chunk, {begin_hold(chunk.weights[0], 0), end_hold(chunk.weights[0], 0),
                              forward(0), backward(0)}),
              HasSubstr("it is kept"));
  EXPECT_THAT(refusal(chunk, {forward(0), begin_hold(y, 0), backward(0)}),
              HasSubstr("the hold of y of program 0 does not end"));
  EXPECT_THAT(refusal(chunk, {forward(0), backward(0), begin_hold(x, 1), end_hold(x, 1)}),
              HasSubstr("nothing uses it"));
  EXPECT_THAT(refusal(chunk, {forward(0), backward(0), Hold{.program = 1, .values = {x}}}),
              HasSubstr("program 1"));
}

/// The error of an executor that runs the last entry after the others, planned for `planned`.
std::string refusal_of_last(const PipelineChunk& chunk, const List& planned, List list) {
  ChunkRun run(chunk, planned);
  const ListEntry last = list.back();
  list.pop_back();
  for (const ListEntry& entry : list) run.follow(entry);
  return internal_error_of([&] { run.follow(last); });
}

TEST(Executor, RefusesHoldsThatWereNotPlanned) {
  const PipelineChunk chunk;
  const Value x = chunk.x, y = chunk.y;
  const List planned{begin_hold(x, 0), end_hold(x, 0), forward(0),  begin_hold(y, 0),
                     forward(1),       end_hold(y, 0), backward(0), backward(1)};
  const auto refused = [&](List list) { return refusal_of_last(chunk, planned, std::move(list)); };
  EXPECT_THAT(refused({begin_hold(x, 0), begin_hold(x, 0)}), HasSubstr("is held already"));
  EXPECT_THAT(refused({begin_hold(x, 0), forward(0)}), HasSubstr("still held"));
  EXPECT_THAT(refused({begin_hold(x, 0), end_hold(x, 0), end_hold(x, 0)}),
              HasSubstr("is not held"));
  EXPECT_THAT(refused({begin_hold(x, 1)}), HasSubstr("was not planned"));
  EXPECT_THAT(refused({begin_hold(x, 2)}), HasSubstr("micro-batch 2 of program 0 was not planned"));
  EXPECT_THAT(refused({forward(0), begin_hold(chunk.seed, 0)}), HasSubstr("was not planned"));
  // Without its hold the memory of y belongs to others, so this is another situation.
  EXPECT_THAT(refused({forward(0), forward(1)}), HasSubstr("was not planned"));
  EXPECT_THAT(refused({forward(0), begin_hold(y, 0), forward(1), backward(0)}),
              HasSubstr("1 values that are held"));
  EXPECT_THAT(refused({forward(0), begin_hold(y, 0), end_hold(y, 0), end_hold(y, 0)}),
              HasSubstr("is not held"));
}

TEST(Executor, AFrameDoesNotBeginAnewWhileAMessageIsUnderWay) {
  const PipelineChunk chunk;
  const List planned{forward(0), begin_hold(chunk.y, 0), backward(0), end_hold(chunk.y, 0)};
  EXPECT_THAT(refusal_of_last(chunk, planned, {forward(0), begin_hold(chunk.y, 0), forward(0)}),
              HasSubstr("begins anew, but its value y is held"));
}

}  // namespace
}  // namespace tessera
