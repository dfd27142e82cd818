#include "plan/early_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "ops/host_target.h"
#include "plan/overlap_step.h"
#include "plan/predicted_step.h"
#include "plan/small_run.h"
#include "plan/step_plan.h"

namespace tessera {
namespace {

StepPrograms programs_of(const RunConfig& config, int ranks, int rank = 0) {
  return step_programs(config, {mesh_of(config, ranks), rank});
}

/// The parts of the update that a list runs, each with what the chunk's segment has run before it.
struct Begun {
  int steps = 0;         // of the update
  int chunk_steps = 0;   // of the segment
  int segment_size = 0;  // of the segment
  Segment segment = Segment::whole;
};

std::vector<Begun> begun_in(const StepPrograms& programs, const StageList& list) {
  std::vector<Begun> result;
  for (const StageEntry& entry : list.entries) {
    const auto* const action = std::get_if<StageAction>(&entry);
    if (action == nullptr) continue;
    const Program& chunk = *programs.list()[static_cast<size_t>(action->run.program)];
    const auto size = static_cast<int>(segment_nodes(chunk, action->run.segment).size());
    int done = 0;
    for (const Action& part : action->runs()) {
      if (part.program == programs.update_number()) {
        result.push_back({part.steps.end - part.steps.begin, done, size, action->run.segment});
      } else {
        EXPECT_EQ(part.steps.begin, done);
        done = std::min(part.steps.end, size);
      }
    }
    EXPECT_EQ(done, size) << "the parts are not the whole segment";
  }
  return result;
}

TEST(EarlySums, BeginWithinTheLastBackwardPassOneUnitAfterTheOther) {
  const StepPrograms programs = programs_of(testing::small_run(3, {}), 2);
  const StageList list = programs.step_list(0, 4);
  const std::vector<Begun> begun = begun_in(programs, list);
  // The forward pass ends with the head's gradient. Then come three layers. The embedding's
  // gradient is complete only at the end.
  ASSERT_GE(begun.size(), 4U);
  EXPECT_EQ(begun.front().segment, Segment::forward);
  int total = 0;
  for (size_t i = 0; i < begun.size(); ++i) {
    total += begun[i].steps;
    EXPECT_LT(begun[i].chunk_steps, begun[i].segment_size);
    if (i == 0) continue;
    EXPECT_EQ(begun[i].segment, Segment::backward);
    if (i > 1) {
      EXPECT_GT(begun[i].chunk_steps, begun[i - 1].chunk_steps);
    }
  }
  EXPECT_EQ(total, list.update_steps);
  for (size_t i = 0; i + 2 < list.entries.size(); ++i) {  // none before the last micro-batch
    const auto& action = std::get<StageAction>(list.entries[i]);
    EXPECT_TRUE(action.parts.empty());
  }
}

/// What a sum reads is complete when it begins: no later step of the passes uses it.
TEST(EarlySums, ComeAfterAllThatUsesTheirAddends) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {}, {"shard.optimizer=\"all\""}, {"parallel.tensor=2"}, {"model.tied_head=true"}}) {
    const StepPrograms programs = programs_of(testing::small_run(3, keys), 4);
    const StageList list = programs.step_list(0, 2);
    const std::vector<const Program*> all = programs.list();
    const auto bases = [&](const Program& program, const Node& node) {
      std::set<std::string> names;
      for (const auto* values : {&node.inputs, &node.outputs}) {
        for (const Value value : *values) names.insert(program.info(program.base(value)).name);
      }
      return names;
    };
    std::set<std::string> summed;
    int sums = 0;
    for (const ListEntry& entry : list.for_plan()) {
      const Action& action = std::get<Action>(entry);
      const Program& program = *all[static_cast<size_t>(action.program)];
      const std::vector<int> nodes = segment_nodes(program, action.segment);
      const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
      for (int step = action.steps.begin; step < end; ++step) {
        const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
        const std::set<std::string> names = bases(program, node);
        if (action.program == programs.update_number()) {
          summed.insert(names.begin(), names.end());
          ++sums;
          continue;
        }
        for (const std::string& name : names) {
          EXPECT_FALSE(summed.contains(name)) << name << " is used after its sum has begun";
        }
      }
    }
    EXPECT_EQ(sums, list.update_steps);
    EXPECT_GT(sums, 3);
  }
}

TEST(EarlySums, AreLeftToTheUpdateWithoutOverlap) {
  const StepPrograms programs = programs_of(testing::small_run(3, {"parallel.overlap=false"}), 2);
  const StageList list = programs.step_list(0, 2);
  EXPECT_EQ(list.update_steps, 0);
  EXPECT_TRUE(begun_in(programs, list).empty());
}

/// By hand: all sums of the update take one second each, on one lane, and nothing else takes time
/// but the last backward pass, which is as long as all that begin within it. Those hide.
TEST(PredictedStep, HidesWhatBeginsWithinTheBackwardPass) {
  const StepPrograms programs = programs_of(testing::small_run(3, {}), 2);
  const StageList list = programs.step_list(0, 1);
  const std::vector<Begun> begun = begun_in(programs, list);
  const Program& chunk = programs.chunks().front().program;
  // The steps right after each begun part take as long as its sums; the others take no time.
  std::map<const Node*, double> seconds;
  int total = 0;
  for (const Begun& part : begun) {
    const int next = segment_nodes(chunk, part.segment)[static_cast<size_t>(part.chunk_steps)];
    seconds[&chunk.nodes()[static_cast<size_t>(next)]] = part.steps;
    total += part.steps;
  }
  int sums = 0;
  for (const Node& node : programs.update.program.nodes()) {
    if (node.operation->lane() == Lane::reductions) {
      seconds[&node] = 1;
      ++sums;
    }
  }
  const auto seconds_of = [&](const Program&, const Node& node) {
    const auto found = seconds.find(&node);
    return found == seconds.end() ? 0.0 : found->second;
  };
  const ListedStep listed{&programs, list};
  const PredictedStep step =
      predict_step(std::span(&listed, 1), host_target(1), {.node = seconds_of, .message = {}});
  double exposed = 0;
  for (const PredictedCall& call : step.stages.front().calls) exposed += call.times.exposed;
  // A unit is a layer, the embedding or the head. That of the embedding is complete last.
  EXPECT_EQ(total, std::ssize(programs.model.parameters.units()) - 1);
  EXPECT_DOUBLE_EQ(exposed, sums - total);
  EXPECT_DOUBLE_EQ(step.seconds, sums);
  EXPECT_GT(total, 3);
}

}  // namespace
}  // namespace tessera
