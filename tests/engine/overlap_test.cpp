#include "engine/overlap.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/lane_operations.h"
#include "program/builder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::LaneStep;

/// A program whose steps have names and times.
struct WrittenSteps {
  Program program;
  Builder builder{program};
  Value x = builder.input("x", {{1024}, DType::f32, {}});
  std::map<int, double> seconds = {};  // by the value that a node makes

  Value add(std::string_view name, Lane lane, Value from, double time) {
    const Value made = builder.apply_single(std::make_shared<LaneStep>(lane), {from});
    builder.name(made, std::string(name));
    seconds[made.id] = time;
    return made;
  }

  /// The names of the steps in their new order.
  std::vector<std::string> order(int64_t memory = 1 << 30) {
    const std::vector<int> found = overlapped_order(
        program, std::array{Segment::whole},
        {.seconds = [&](const Program&,
                        const Node& node) { return seconds.at(node.outputs.front().id); },
         .memory = memory});
    if (!found.empty()) program.reorder(found);
    std::vector<std::string> names;
    for (const Node& node : program.nodes()) names.push_back(program.name_of(node));
    return names;
  }
};

TEST(Overlap, ComputesWhatNeedsNothingOfACallWhileItIsUnderWay) {
  WrittenSteps steps;
  const Value made = steps.add("made", Lane::compute, steps.x, 1);
  const Value sent = steps.add("sent", Lane::exchanges, made, 2);
  steps.builder.output(steps.add("needs sent", Lane::compute, sent, 1));
  const Value own = steps.add("own 1", Lane::compute, made, 1);
  steps.builder.output(steps.add("own 2", Lane::compute, own, 1));
  steps.builder.output(steps.add("own 3", Lane::compute, steps.x, 1));
  EXPECT_THAT(steps.order(), ElementsAre("made", "sent", "own 1", "own 2", "needs sent", "own 3"));
}

TEST(Overlap, BeginsACallAsSoonAsItMay) {
  WrittenSteps steps;
  const Value made = steps.add("made", Lane::compute, steps.x, 1);
  steps.builder.output(steps.add("own", Lane::compute, steps.x, 5));
  const Value sent = steps.add("sent", Lane::exchanges, made, 2);
  steps.builder.output(steps.add("needs sent", Lane::compute, sent, 1));
  EXPECT_THAT(steps.order(), ElementsAre("made", "sent", "own", "needs sent"));
}

TEST(Overlap, LeavesTheOrderWhereNoLaneWaits) {
  WrittenSteps steps;
  const Value sent = steps.add("sent", Lane::exchanges, steps.x, 1);
  steps.builder.output(steps.add("own", Lane::compute, steps.x, 1));
  steps.builder.output(steps.add("needs sent", Lane::compute, sent, 1));
  steps.builder.output(steps.add("last", Lane::compute, steps.x, 1));
  EXPECT_THAT(steps.order(), ElementsAre("sent", "own", "needs sent", "last"));
}

/// Each result has 4 KiB. "own" is taken ahead of "needs sent" only if its result may be in memory
/// beside those of the written order.
TEST(Overlap, TakesNothingAheadThatMemoryHasNoRoomFor) {
  for (const bool has_room : {false, true}) {
    WrittenSteps steps;
    const Value sent = steps.add("sent", Lane::exchanges, steps.x, 3);
    const Value used = steps.add("needs sent", Lane::compute, sent, 1);
    const Value own = steps.add("own", Lane::compute, steps.x, 1);
    steps.builder.output(steps.add("needs both", Lane::compute, own, 1));
    steps.builder.output(steps.add("rest", Lane::compute, used, 1));
    const std::vector<std::string> order = steps.order(has_room ? 4096 : 4095);
    if (has_room) {
      EXPECT_THAT(order, ElementsAre("sent", "own", "needs both", "needs sent", "rest"));
    } else {
      EXPECT_THAT(order, ElementsAre("sent", "needs sent", "own", "needs both", "rest"));
    }
  }
}

TEST(Overlap, KeepsTheOrderOfNodesThatChangeTheSameMemory) {
  WrittenSteps steps;
  const Value state = steps.builder.state("state", {{1024}, DType::f32, {}});
  const Value sent = steps.add("sent", Lane::exchanges, steps.x, 9);
  steps.builder.apply(std::make_shared<testing::LaneCompute>(true), {state, sent});
  steps.builder.apply(std::make_shared<testing::LaneCompute>(true), {state, steps.x});
  const std::vector<int> order = overlapped_order(
      steps.program, std::array{Segment::whole},
      {.seconds = [](const Program&, const Node&) { return 1.0; }, .memory = 1 << 30});
  EXPECT_TRUE(order.empty());
}

TEST(Program, RefusesAnOrderThatUsesAValueBeforeItIsMade) {
  WrittenSteps steps;
  const Value made = steps.add("made", Lane::compute, steps.x, 1);
  steps.builder.output(steps.add("user", Lane::compute, made, 1));
  EXPECT_THROW(Program(steps.program).reorder(std::array{1, 0}), InternalError);
  EXPECT_THROW(Program(steps.program).reorder(std::array{0, 0}), InternalError);
  EXPECT_THROW(Program(steps.program).reorder(std::array{0}), InternalError);
}

}  // namespace
}  // namespace tessera
