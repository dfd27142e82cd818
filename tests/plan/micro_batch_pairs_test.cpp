#include "plan/micro_batch_pairs.h"

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "engine/lane_operations.h"
#include "plan/predicted_step.h"
#include "plan/small_run.h"
#include "plan/step_plan.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

/// Each node takes a second, and each call of other ranks two.
double seconds_of(const Program& /*program*/, const Node& node) {
  return node.operation->group_axes().empty() ? 1 : 2;
}

StepPrograms rank_programs(const std::vector<std::string>& keys, int ranks, int rank = 0) {
  const RunConfig config = testing::small_run(3, keys);
  return step_programs(config, {mesh_of(config, ranks), rank});
}

/// Returns the names of kept values that a node changes, and of those that it uses.
std::pair<std::set<std::string>, std::set<std::string>> kept_names(const Program& program,
                                                                   const Node& node) {
  std::set<std::string> changed, used;
  const auto name = [&](Value value) {
    const ValueInfo& info = program.info(program.base(value));
    const bool is_kept = info.kind == ValueKind::parameter ||
                         info.kind == ValueKind::main_gradient || info.kind == ValueKind::state;
    return is_kept ? fmt::format("{} {}", int(info.kind), info.name) : "";
  };
  for (const Value value : node.inputs) used.insert(name(value));
  for (const Value value : node.outputs) changed.insert(name(value));
  for (const int input : node.operation->updated_inputs()) {
    changed.insert(name(node.inputs[static_cast<size_t>(input)]));
  }
  changed.erase("");
  used.insert(changed.begin(), changed.end());
  used.erase("");
  return {changed, used};
}

const std::vector<std::vector<std::string>> kLayouts{
    {"parallel.tensor=2"},
    {"parallel.tensor=2", "train.recompute=['layer']"},
    {"parallel.context=2"},
    {"shard.optimizer='all'", "shard.gradients='all'", "shard.weights='all'"},
    {"model.family='mixtral'", "model.experts=4", "model.experts_per_token=2",
     "model.expert_size=16", "model.feed_forward_size=0", "parallel.expert=2"}};

/// Both micro-batches run every step once and in order, and take turns. What one changes in values
/// that are kept, the other does not use in between.
TEST(MicroBatchPairs, KeepTheOrderOfMicroBatchesInAllThatIsKept) {
  for (const auto& layout : kLayouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const StepPrograms programs = rank_programs(layout, 2);
    const Program& program = programs.chunks().front().program;
    int turns = 0, kept = 0;
    for (const Segment segment : {Segment::forward, Segment::backward}) {
      const std::vector<int> nodes = segment_nodes(program, segment);
      const auto parts = pair_parts(program, segment, seconds_of);
      if (!parts) continue;
      turns += static_cast<int>(parts->size());
      std::map<bool, std::vector<int>> run;
      std::map<std::string, std::vector<bool>> changes;  // by name: who changed it, in order
      for (const PairPart& part : *parts) {
        const int end = std::min(part.steps.end, static_cast<int>(nodes.size()));
        for (int step = part.steps.begin; step < end; ++step) {
          run[part.is_of_second].push_back(step);
          const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
          const auto [changed, used] = kept_names(program, node);
          for (const std::string& name : changed) changes[name].push_back(part.is_of_second);
        }
      }
      std::vector<int> all(nodes.size());
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
      EXPECT_EQ(run[false], all);
      EXPECT_EQ(run[true], all);
      for (const auto& [name, who] : changes) {
        EXPECT_TRUE(std::ranges::is_sorted(who)) << name << " is changed out of turn";
        ++kept;
      }
    }
    EXPECT_GT(turns, 8);
    EXPECT_GT(kept, 3);
  }
}

/// A value that a step changes and an earlier one reads: the first micro-batch changes it before
/// the second one reads it.
TEST(MicroBatchPairs, ReadWhatTheFirstMicroBatchHasChanged) {
  Program program;
  Builder builder(program);
  const Spec spec{{8}, DType::f32, {}};
  const Value x = builder.input("x", spec);
  const Value state = builder.state("state", spec);
  const auto compute = std::make_shared<testing::LaneCompute>();
  const Value read = builder.apply_single(compute, {x, state});
  const Value sent =
      builder.apply_single(std::make_shared<testing::LaneStep>(Lane::exchanges), {read});
  const Value used = builder.apply_single(compute, {sent, x});
  builder.output(used);
  const auto turns = [&] {
    return pair_parts(program, Segment::whole, [](const Program&, const Node& node) {
      return node.operation->lane() == Lane::compute ? 1.0 : 5.0;
    });
  };
  EXPECT_TRUE(turns());
  builder.apply(std::make_shared<testing::LaneCompute>(/*in_place=*/true), {state, used});
  EXPECT_FALSE(turns()) << "the second micro-batch reads the state before the first changes it";
}

std::string text_of(const Action& action) {
  return fmt::format("{} {}:{}", word(action.segment), action.micro_batch, action.steps.begin);
}

TEST(MicroBatchPairs, RunForwardPassesBeforeBackwardPasses) {
  const PairParts parts{
      {Segment::forward, {{false, {0, 2}}, {true, {0, 3}}, {false, {2, 9}}, {true, {3, 9}}}}};
  const ChunkProgram chunk{};
  const auto list_of = [&](int micro_batches) {
    PipelineSchedule schedule{.name = "one chunk", .micro_batches = micro_batches};
    schedule.placement = loop_placement(1, 1);
    schedule.ranks.resize(1);
    StageList list = stage_list(in_pairs(schedule), 0, std::span(&chunk, 1));
    take_turns(list, parts);
    std::vector<std::vector<std::string>> entries;
    for (const StageEntry& entry : list.entries) {
      entries.emplace_back();
      for (const Action& action : std::get<StageAction>(entry).runs()) {
        entries.back().push_back(text_of(action));
      }
    }
    return entries;
  };
  using Texts = std::vector<std::string>;
  EXPECT_THAT(list_of(1), ElementsAre(Texts{"forward 0:0"}, Texts{"backward 0:0"}));
  const Texts head{"forward 0:0"}, rest{"forward 1:0", "forward 0:2", "forward 1:3"};
  EXPECT_THAT(list_of(2), ElementsAre(head, rest, Texts{"backward 0:0"}, Texts{"backward 1:0"}));
  EXPECT_THAT(list_of(3), ElementsAre(head, rest, Texts{"backward 0:0"}, Texts{"backward 1:0"},
                                      Texts{"forward 0:0"}, Texts{"backward 0:0"}));
}

/// Returns how many entries of a list run in parts of two micro-batches.
int64_t pairs_in(const StepPrograms& programs, const StageList& list) {
  return std::ranges::count_if(list.entries, [&](const StageEntry& entry) {
    const auto& action = std::get<StageAction>(entry);
    return std::ranges::any_of(action.runs(), [&](const Action& run) {
      return run.program != programs.update_number() && run.micro_batch != action.run.micro_batch;
    });
  });
}

TEST(MicroBatchPairs, TakeTurnsWhereThatMakesStepsShorter) {
  const std::string tensor = "parallel.tensor=2";
  const StepPrograms programs = rank_programs({tensor}, 2);
  EXPECT_EQ(pairs_in(programs, programs.step_list(0, 4)), 4);
  EXPECT_EQ(pairs_in(programs, programs.step_list(0, 5)), 4) << "the last one is alone";
  EXPECT_EQ(pairs_in(programs, programs.step_list(0, 4, /*overlaps=*/false)), 0);
  // Nothing is exposed, nothing may be in memory, there is one micro-batch, or overlap is off. The
  // forward pass adds to the gradient of a tied head, to which the backward pass adds, too.
  for (const std::vector<std::string>& keys :
       std::vector<std::vector<std::string>>{{},
                                             {tensor, "parallel.overlap_memory='0 B'"},
                                             {tensor, "train.global_batch=1"},
                                             {tensor, "parallel.overlap=false"},
                                             {tensor, "model.tied_head=true"}}) {
    const StepPrograms other = rank_programs(keys, 2);
    EXPECT_TRUE(other.sets.front().pairs.empty()) << ::testing::PrintToString(keys);
  }
}

/// By hand: a layer's calls take as long as its computing. One micro-batch after the other they
/// add up. In turns they run beside the computing of the other one, but for those that come first
/// and last.
TEST(MicroBatchPairs, HideCallsWhoseResultsAreNeededAtOnce) {
  StepPrograms programs = rank_programs({"parallel.tensor=2"}, 2);
  StepPrograms alone = programs;
  alone.sets.front().pairs.clear();
  const Program& chunk = programs.chunks().front().program;
  for (const Segment segment : {Segment::forward, Segment::backward}) {
    programs.sets.front().pairs[segment] = *pair_parts(chunk, segment, seconds_of);
  }
  const auto exposed = [](const StepPrograms& of) {
    const ListedStep step{.programs = &of, .list = of.step_list(0, 8)};
    const auto seconds = [&](const Program& program, const Node& node) {
      return &program == &of.chunks().front().program ? seconds_of(program, node) : 0;
    };
    const PredictedStep predicted =
        predict_step(std::span(&step, 1), Target{}, {.node = seconds, .message = {}});
    return predicted.seconds - predicted.stages.front().computing;
  };
  EXPECT_LT(exposed(programs), 0.3 * exposed(alone));
}

}  // namespace
}  // namespace tessera
