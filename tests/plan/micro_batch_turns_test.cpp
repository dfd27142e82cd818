#include "plan/micro_batch_turns.h"

#include <algorithm>
#include <functional>
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
#include "engine/memory_plan.h"
#include "pipeline/generate.h"
#include "plan/overlap_step.h"
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

/// The programs of the first rank of two, whose orders go by those seconds.
StepPrograms overlapped_programs(std::vector<std::string> keys, int64_t memory) {
  keys.emplace_back("parallel.overlap=false");
  StepPrograms programs = rank_programs(keys, 2);
  FoundOrders found;
  overlap(
      programs, {.seconds = seconds_of, .memory = memory},
      [&](int rank) { return rank_programs(keys, 2, rank); }, found);
  return programs;
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

/// A use of a kept value.
struct Use {
  bool is_of_second = false;
  bool changes = false;
};

/// Each pass runs every step once and in order. What one micro-batch changes in values that are
/// kept, the other one uses before or after that as if it ran alone.
void expect_order_kept(const Program& program, const PassesInTurns& passes) {
  std::map<bool, std::vector<int>> run;
  std::map<std::string, std::vector<Use>> uses;  // by name
  for (const TurnPart& part : passes.parts) {
    const Segment segment = part.is_of_second ? passes.second : passes.first;
    const std::vector<int> nodes = segment_nodes(program, segment);
    const int end = std::min(part.steps.end, static_cast<int>(nodes.size()));
    for (int step = part.steps.begin; step < end; ++step) {
      run[part.is_of_second].push_back(step);
      const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
      const auto [changed, used] = kept_names(program, node);
      for (const std::string& name : used) {
        uses[name].push_back({part.is_of_second, changed.contains(name)});
      }
    }
  }
  for (const bool is_of_second : {false, true}) {
    const Segment segment = is_of_second ? passes.second : passes.first;
    std::vector<int> all(segment_nodes(program, segment).size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    EXPECT_EQ(run[is_of_second], all);
  }
  for (const auto& [name, in_order] : uses) {
    for (size_t i = 0; i < in_order.size(); ++i) {
      for (size_t j = i + 1; j < in_order.size(); ++j) {
        const bool is_swapped = in_order[i].is_of_second && !in_order[j].is_of_second;
        EXPECT_FALSE(is_swapped && (in_order[i].changes || in_order[j].changes)) << name;
      }
    }
  }
}

TEST(MicroBatchTurns, KeepTheOrderOfMicroBatchesInAllThatIsKept) {
  for (const auto& layout : kLayouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const StepPrograms programs = rank_programs(layout, 2);
    const Program& program = programs.chunks().front().program;
    for (const bool in_pairs : {false, true}) {
      const MicroBatchTurns turns = find_turns(program, in_pairs, seconds_of);
      EXPECT_EQ(turns.passes.size(), in_pairs ? 2U : 1U);
      for (const PassesInTurns& passes : turns.passes) {
        EXPECT_GT(passes.parts.size(), 3U);
        expect_order_kept(program, passes);
      }
    }
  }
}

/// The gradient of a tied head is added in the forward pass, that of the embedding in the backward
/// pass.
TEST(MicroBatchTurns, OfATiedHeadDoNotChangeTheOrderOfItsGradients) {
  const StepPrograms programs = rank_programs({"parallel.tensor=2", "model.tied_head=true"}, 2);
  const Program& program = programs.chunks().front().program;
  EXPECT_TRUE(find_turns(program, /*in_pairs=*/true, seconds_of).empty());
  const MicroBatchTurns turns = find_turns(program, /*in_pairs=*/false, seconds_of);
  ASSERT_EQ(turns.passes.size(), 1U);
  expect_order_kept(program, turns.passes.front());
  const MicroBatchTurns taken =
      overlapped_programs({"parallel.tensor=2", "model.tied_head=true"}, 1 << 20)
          .sets.front()
          .turns;
  EXPECT_FALSE(taken.empty());
  EXPECT_FALSE(taken.in_pairs);
}

/// A program that computes, calls and computes. `with_state` may add nodes that use a state, at the
/// beginning and at the end.
struct CallBetween {
  using AddNode = std::function<void(Builder& builder, Value state, Value x)>;
  explicit CallBetween(const AddNode& first, const AddNode& last) {
    Builder builder(program);
    const Spec spec{{8}, DType::f32, {}};
    const Value x = builder.input("x", spec);
    const Value state = builder.state("state", spec);
    first(builder, state, x);
    const auto compute = std::make_shared<testing::LaneCompute>();
    const Value made = builder.apply_single(compute, {x, x});
    const Value sent =
        builder.apply_single(std::make_shared<testing::LaneStep>(Lane::exchanges), {made});
    const Value used = builder.apply_single(compute, {sent, x});
    builder.output(used);
    last(builder, state, used);
  }
  bool takes_turns() const {
    const auto seconds = [](const Program&, const Node& node) {
      return node.operation->lane() == Lane::compute ? 1.0 : 5.0;
    };
    return !find_turns(program, /*in_pairs=*/true, seconds).empty();
  }

  Program program;
};

TEST(MicroBatchTurns, LeaveChangesOfAStateBetweenTheUsesThatTheyHadBefore) {
  const auto none = [](Builder&, Value, Value) {};
  const auto read = [](Builder& builder, Value state, Value x) {
    builder.output(builder.apply_single(std::make_shared<testing::LaneCompute>(), {x, state}));
  };
  const auto change = [](Builder& builder, Value state, Value x) {
    builder.apply(std::make_shared<testing::LaneCompute>(/*in_place=*/true), {state, x});
  };
  EXPECT_TRUE(CallBetween(none, none).takes_turns());
  EXPECT_TRUE(CallBetween(read, read).takes_turns());
  EXPECT_TRUE(CallBetween(change, none).takes_turns()) << "each changes it at its beginning";
  EXPECT_FALSE(CallBetween(read, change).takes_turns()) << "the second one would read too early";
  EXPECT_FALSE(CallBetween(change, read).takes_turns()) << "the second one would change too early";
}

std::string text_of(const Action& action) {
  return fmt::format("{} {}:{}", word(action.segment), action.micro_batch, action.steps.begin);
}

/// Returns the actions of the list of one chunk, by entry.
std::vector<std::vector<std::string>> entries_of(int micro_batches, const MicroBatchTurns& turns) {
  const ChunkProgram chunk{};
  PipelineSchedule schedule = generate(ScheduleKind::one_forward_one_backward,
                                       {.ranks = 1, .chunks = 1, .micro_batches = micro_batches});
  if (turns.in_pairs) schedule = in_pairs(std::move(schedule));
  StageList list = stage_list(schedule, 0, std::span(&chunk, 1));
  take_turns(list, turns);
  std::vector<std::vector<std::string>> entries;
  for (const StageEntry& entry : list.entries) {
    entries.emplace_back();
    for (const Action& action : std::get<StageAction>(entry).runs()) {
      entries.back().push_back(text_of(action));
    }
  }
  return entries;
}

using Texts = std::vector<std::string>;
const std::vector<TurnPart> kParts{
    {false, {0, 2}}, {true, {0, 3}}, {false, {2, 9}}, {true, {3, 9}}};

TEST(MicroBatchTurns, InPairsRunForwardPassesBeforeBackwardPasses) {
  const MicroBatchTurns turns{.in_pairs = true,
                              .passes = {{Segment::forward, Segment::forward, kParts}}};
  EXPECT_THAT(entries_of(1, turns), ElementsAre(Texts{"forward 0:0"}, Texts{"backward 0:0"}));
  const Texts head{"forward 0:0"}, rest{"forward 1:0", "forward 0:2", "forward 1:3"};
  EXPECT_THAT(entries_of(2, turns),
              ElementsAre(head, rest, Texts{"backward 0:0"}, Texts{"backward 1:0"}));
  EXPECT_THAT(entries_of(3, turns),
              ElementsAre(head, rest, Texts{"backward 0:0"}, Texts{"backward 1:0"},
                          Texts{"forward 0:0"}, Texts{"backward 0:0"}));
}

TEST(MicroBatchTurns, RunABackwardPassBesideTheNextForwardPass) {
  const MicroBatchTurns turns{.passes = {{Segment::backward, Segment::forward, kParts}}};
  EXPECT_THAT(entries_of(1, turns), ElementsAre(Texts{"forward 0:0"}, Texts{"backward 0:0"}));
  EXPECT_THAT(
      entries_of(3, turns),
      ElementsAre(Texts{"forward 0:0"}, Texts{"backward 0:0"},
                  Texts{"forward 1:0", "backward 0:2", "forward 1:3"}, Texts{"backward 1:0"},
                  Texts{"forward 0:0", "backward 1:2", "forward 0:3"}, Texts{"backward 0:0"}));
}

/// Returns how many entries of a list run in parts of two micro-batches.
int64_t turns_in(const StepPrograms& programs, const StageList& list) {
  return std::ranges::count_if(list.entries, [&](const StageEntry& entry) {
    const auto& action = std::get<StageAction>(entry);
    return std::ranges::any_of(action.runs(), [&](const Action& run) {
      return run.program != programs.update_number() && run.micro_batch != action.run.micro_batch;
    });
  });
}

TEST(MicroBatchTurns, AreTakenWhereThatMakesStepsShorter) {
  const std::string tensor = "parallel.tensor=2";
  const StepPrograms programs = rank_programs({tensor}, 2);
  ASSERT_TRUE(programs.sets.front().turns.in_pairs);
  EXPECT_EQ(turns_in(programs, programs.step_list(0, 4)), 4);
  EXPECT_EQ(turns_in(programs, programs.step_list(0, 5)), 4) << "the last one is alone";
  EXPECT_EQ(turns_in(programs, programs.step_list(0, 4, /*overlaps=*/false)), 0);
  // Nothing is exposed, nothing may be in memory, there is one micro-batch, or overlap is off.
  for (const std::vector<std::string>& keys :
       std::vector<std::vector<std::string>>{{},
                                             {tensor, "parallel.overlap_memory='0 B'"},
                                             {tensor, "train.global_batch=1"},
                                             {tensor, "parallel.overlap=false"}}) {
    const StepPrograms other = rank_programs(keys, 2);
    EXPECT_TRUE(other.sets.front().turns.empty()) << ::testing::PrintToString(keys);
  }
}

/// A backward pass frees what the next forward pass needs, so both take little more than one.
TEST(MicroBatchTurns, OfABackwardPassAndTheNextForwardPassFitIntoLessMemory) {
  const auto live_bytes = [](const StepPrograms& programs) {
    return plan_live_bytes(programs.list(), programs.actions(), Target{});
  };
  StepPrograms programs = rank_programs({"parallel.tensor=2", "parallel.overlap_memory='0 B'"}, 2);
  const int64_t alone = live_bytes(programs);
  std::map<bool, int64_t> more;
  for (const bool in_pairs : {false, true}) {
    const Program& chunk = programs.chunks().front().program;
    programs.sets.front().turns = find_turns(chunk, in_pairs, seconds_of);
    more[in_pairs] = live_bytes(programs) - alone;
  }
  EXPECT_LT(more[false], more[true] / 2);
  const auto turns_within = [](int64_t memory) {
    return overlapped_programs({"parallel.tensor=2"}, memory).sets.front().turns;
  };
  EXPECT_TRUE(turns_within(1 << 20).in_pairs);
  EXPECT_FALSE(turns_within(more[false]).in_pairs);
  EXPECT_FALSE(turns_within(more[false]).empty());
}

/// One micro-batch after the other, nearly all calls are exposed. In turns they run beside the
/// computing of the other one, but for those that come first and last.
TEST(MicroBatchTurns, HideCallsWhoseResultsAreNeededAtOnce) {
  StepPrograms programs = rank_programs({"parallel.tensor=2"}, 2);
  const Program& chunk = programs.chunks().front().program;
  const auto exposed_with = [&](const MicroBatchTurns& turns) {
    programs.sets.front().turns = turns;
    const ListedStep step{.programs = &programs, .list = programs.step_list(0, 8)};
    const auto seconds = [&](const Program& program, const Node& node) {
      return &program == &chunk ? seconds_of(program, node) : 0;
    };
    const PredictedStep predicted =
        predict_step(std::span(&step, 1), Target{}, {.node = seconds, .message = {}});
    return predicted.seconds - predicted.stages.front().computing;
  };
  const double alone = exposed_with({});
  EXPECT_LT(exposed_with(find_turns(chunk, /*in_pairs=*/false, seconds_of)), 0.5 * alone);
  EXPECT_LT(exposed_with(find_turns(chunk, /*in_pairs=*/true, seconds_of)), 0.3 * alone);
}

}  // namespace
}  // namespace tessera
