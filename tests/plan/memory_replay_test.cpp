#include "support/memory_replay.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "engine/lane_operations.h"
#include "ops/elementwise/elementwise.h"
#include "plan/step_plan.h"
#include "program/view.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Target replay_target(MatrixInstructions instructions = MatrixInstructions::avx512_bf16) {
  return {.threads = 4,
          .instructions = instructions,
          .caches = {.first_level = 32 << 10, .second_level = 1 << 20, .last_level = 32 << 20}};
}

RunConfig small_run(const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"model.vocabulary_size=300", "model.layers=2",
                                     "model.hidden_size=32",      "model.heads=4",
                                     "model.kv_heads=2",          "data.context=16",
                                     "train.micro_batch=2",       "train.global_batch=4"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parse_config("", "test", overrides);
}

/// All that a rank does in steps with one micro-batch and with more, twice: what is left from the
/// first time is in memory.
std::vector<ListEntry> two_steps(const StepPrograms& programs) {
  std::vector<ListEntry> list = programs.actions();
  const std::vector<ListEntry> once = list;
  list.insert(list.end(), once.begin(), once.end());
  return list;
}

std::vector<std::string> lost_in(const RunConfig& config, const Target& target) {
  const StepPlan plan = plan_step(config, target);
  const std::vector<const Program*> programs = plan.programs.list();
  return testing::MemoryReplay(programs, plan.memory).run(two_steps(plan.programs));
}

TEST(MemoryReplay, AStepLosesNothingWithAnyRecomputation) {
  const std::vector<std::vector<std::string>> models{
      {"model.experts=4", "model.experts_per_token=2", "model.expert_size=32"},
      {"model.family=\"llama\"", "model.experts=0", "model.feed_forward_size=96"},
      {"model.family=\"llama\"", "model.experts=0", "model.feed_forward_size=96",
       "model.tied_head=true"},
      {"model.experts=4", "model.experts_per_token=2", "model.expert_size=32",
       "model.shared_experts=1", "model.dense_layers=1", "model.feed_forward_size=96",
       "model.capacity_factor=1.25"}};
  const char* const recompute[] = {"[]",
                                   "[\"norm\"]",
                                   "[\"attention\"]",
                                   "[\"experts\"]",
                                   "[\"layer\"]",
                                   "[\"norm\",\"attention\"]",
                                   "[\"norm\",\"experts\"]",
                                   "[\"attention\",\"experts\"]",
                                   "[\"norm\",\"attention\",\"experts\"]"};
  auto instructions = MatrixInstructions::avx2;
  for (const auto& model : models) {
    for (const char* blocks : recompute) {
      for (const char* rest :
           {"train.evaluate_every=1", "train.precision=\"fp32\"", "data.document_mask=false"}) {
        std::vector<std::string> overrides = model;
        overrides.push_back(fmt::format("train.recompute={}", blocks));
        overrides.emplace_back(rest);
        EXPECT_THAT(lost_in(small_run(overrides), replay_target(instructions)), IsEmpty())
            << fmt::format("{}", fmt::join(overrides, " "));
        // Every setting meets both: there is an odd number of lists of blocks and of settings.
        instructions = instructions == MatrixInstructions::avx2 ? MatrixInstructions::amx
                                                                : MatrixInstructions::avx2;
      }
    }
  }
}

/// Whether a node that runs reads a value; views of it do not run.
bool is_read(const Program& program, Value value) {
  return program.is_output(value) || std::ranges::any_of(program.nodes(), [&](const Node& node) {
           return !node.operation->view(0) &&
                  std::ranges::find(node.inputs, value) != node.inputs.end();
         });
}

TEST(MemoryReplay, FindsWhatAWrongPlanLoses) {
  const StepPlan plan = plan_step(small_run({}), replay_target());
  const std::vector<const Program*> programs = plan.programs.list();
  const std::vector<ListEntry> actions = two_steps(plan.programs);
  int found = 0, moved = 0;
  for (size_t id = 0; id < plan.memory.programs[0].values[0].size(); ++id) {
    const int64_t offset = plan.memory.programs[0].values[0][id];
    const ValueInfo& info = programs[0]->values()[id];
    if (offset < 0 || info.kind != ValueKind::computed || id % 9 != 0) continue;
    if (info.view && !is_read(*programs[0], Value{static_cast<int>(id)})) continue;
    const auto is_found_at = [&](int64_t place) {
      if (place == offset) return false;
      MemoryPlan wrong = plan.memory;
      wrong.programs[0].values[0][id] = place;
      return !testing::MemoryReplay(programs, wrong).run(actions).empty();
    };
    // Onto the memory of others; while a value lives, one of the two places may be free.
    ++moved;
    const int64_t last = plan.memory.arena_bytes - aligned_bytes(info.spec.bytes());
    if (is_found_at(0) || is_found_at(last)) ++found;
  }
  EXPECT_GT(moved, 10);
  EXPECT_EQ(found, moved);
}

TEST(MemoryReplay, RanksLoseNothingWhileLanesAreAtWork) {
  const std::vector<std::string> mixture{"model.experts=4", "model.experts_per_token=2",
                                         "model.expert_size=32"};
  const std::vector<std::vector<std::string>> layouts{
      {"parallel.tensor=2"},
      {"parallel.tensor=2", "parallel.context=2"},
      {"parallel.expert=2", "parallel.expert_exchange=\"all_to_all\""},
      {"parallel.expert=4", "parallel.expert_exchange=\"all_gather\"", "parallel.tensor=2"},
      {"shard.optimizer=\"all\""},
      {"shard.optimizer=\"all\"", "shard.gradients=\"all\"", "shard.weights=\"all\""},
      {"shard.optimizer=\"all\"", "shard.gradients=\"all\"", "shard.weights=\"all\"",
       "parallel.levels=[2]", "train.recompute=[\"layer\"]"},
      {"parallel.levels=[2]", "shard.gradients_wire=\"int4\"", "optimizer.name=\"muon\""}};
  int beside = 0;  // nodes that the compute lane does not await at once
  int with_turns = 0;
  for (const auto& layout : layouts) {
    std::vector<std::string> overrides = mixture;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    overrides.emplace_back("train.global_batch=16");
    const RunConfig config = small_run(overrides);
    const Mesh mesh = mesh_of(config, 4);
    for (const int rank : {0, 3}) {
      const StepPlan plan = plan_step(config, replay_target(), {mesh, rank});
      if (!plan.programs.sets.front().turns.empty()) ++with_turns;
      const std::vector<const Program*> programs = plan.programs.list();
      EXPECT_THAT(testing::MemoryReplay(programs, plan.memory).run(two_steps(plan.programs)),
                  IsEmpty())
          << fmt::format("{}", fmt::join(layout, " "));
      for (const ProgramMemory& memory : plan.memory.programs) {
        for (const Joins& joins : memory.joins) {
          for (int step = 0; step < std::ssize(joins.busy_until); ++step) {
            if (joins.busy_until[static_cast<size_t>(step)] > step) ++beside;
          }
        }
      }
    }
  }
  EXPECT_GT(beside, 100);
  EXPECT_GE(with_turns, 4) << "of tensor and expert ranks";
}

TEST(MemoryReplay, FindsWhatIsGivenAwayWhileALaneIsAtWork) {
  Program program;
  Builder builder(program);
  const Spec spec{{64}, DType::f32, {}};
  const Value x = builder.input("x", spec);
  const Value made = scale(builder, x, 2);
  const auto send = std::make_shared<testing::LaneStep>(Lane::exchanges);
  const Value sent = builder.apply_single(send, {made});
  const Value beside = scale(builder, x, 3);
  builder.output(scale(builder, sent, 4));
  builder.output(scale(builder, beside, 5));
  const Program* const programs[] = {&program};
  const Action actions[] = {{}};
  MemoryPlan plan = plan_memory(programs, actions, replay_target());
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions), IsEmpty());
  std::vector<int64_t>& offsets = plan.programs[0].values[0];
  offsets[static_cast<size_t>(beside.id)] = offsets[static_cast<size_t>(made.id)];
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions),
              Contains(HasSubstr("input at work")));
}

/// What a sum over ranks on a lane waits for, and what waits for it.
struct LanesOfSum {
  Program program;
  Builder builder{program};
  Value made, sent, state;

  LanesOfSum() {
    const Spec spec{{64}, DType::f32, {}};
    const Value x = builder.input("x", spec);
    state = builder.state("state", spec);
    made = scale(builder, x, 2);
    sent = builder.apply_single(std::make_shared<testing::LaneStep>(Lane::exchanges), {made});
    builder.apply(std::make_shared<testing::LaneCompute>(/*in_place=*/true), {state, x});
    const Value also =
        builder.apply_single(std::make_shared<testing::LaneStep>(Lane::reductions), {sent});
    builder.output(scale(builder, also, 4));
  }
};

TEST(MemoryReplay, FindsWhatJoinsDoNotAwait) {
  LanesOfSum lanes;
  const Program* const programs[] = {&lanes.program};
  const Action actions[] = {{}, {}};
  const MemoryPlan plan = plan_memory(programs, std::span(actions, 1), replay_target());
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions), IsEmpty());
  const std::vector<LaneSteps>& awaited = plan.programs[0].joins[0].awaited;
  int joins = 0;
  for (size_t step = 0; step < awaited.size(); ++step) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (awaited[step][lane] < 0) continue;
      ++joins;
      MemoryPlan wrong = plan;
      wrong.programs[0].joins[0].awaited[step][lane] = -1;
      EXPECT_THAT(testing::MemoryReplay(programs, wrong).run(actions),
                  Contains(HasSubstr("at work")))
          << "step " << step;
    }
  }
  EXPECT_EQ(joins, 2);
}

TEST(MemoryReplay, FindsWhatLateWaitsDoNotAwait) {
  Program program;
  Builder builder(program);
  const Spec spec{{64}, DType::f32, {}};
  const Value x = builder.input("x", spec);
  const Value state = builder.state("state", spec);
  builder.apply(std::make_shared<testing::LaneCompute>(/*in_place=*/true), {state, x});
  const Value sent =
      builder.apply_single(std::make_shared<testing::LaneStep>(Lane::reductions), {state});
  builder.apply_single(std::make_shared<testing::LaneStep>(Lane::reductions), {sent});
  const Program* const programs[] = {&program};
  const Action actions[] = {{.micro_batch = 0}, {.micro_batch = 1}};
  MemoryPlan plan = plan_memory(programs, actions, replay_target());
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions), IsEmpty());
  int waits = 0;
  for (std::vector<LateWait>& of_step : plan.late_waits[0][0]) {
    waits += static_cast<int>(of_step.size());
    std::erase_if(of_step, [](const LateWait& wait) { return !wait.same_frame; });
  }
  EXPECT_GT(waits, 0);
  // The frame of the first micro-batch is another one than that of the second.
  plan.programs[0].frames[1] = 1;
  plan.programs[0].values.push_back(plan.programs[0].values[0]);
  plan.programs[0].workspaces.push_back(plan.programs[0].workspaces[0]);
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions),
              Contains(HasSubstr("meets lane_step at work: state")));
}

TEST(MemoryReplay, FindsWhatIsGivenAwayWhileAMessageIsUnderWay) {
  Program program;
  Builder builder(program);
  const Spec spec{{64}, DType::f32, {}};
  const Value x = builder.input("x", spec);
  const Value y = scale(builder, scale(builder, x, 2), 3);
  builder.output(y);
  const Program* const programs[] = {&program};
  const Hold received{.program = 0, .micro_batch = 1, .values = {x}};
  const Hold sent{.program = 0, .micro_batch = 0, .values = {y}};
  const auto end_of = [](Hold hold) {
    hold.begins = false;
    return hold;
  };
  const std::vector<ListEntry> list{
      received, Action{}, sent, end_of(received), Action{.micro_batch = 1}, end_of(sent)};
  const MemoryPlan plan = plan_memory(programs, list, replay_target());
  EXPECT_THAT(testing::MemoryReplay(programs, plan).run(list), IsEmpty());
  const auto offset = [&](MemoryPlan& of, int micro_batch, Value value) -> int64_t& {
    ProgramMemory& memory = of.programs[0];
    const auto frame = static_cast<size_t>(memory.frames.at(micro_batch));
    return memory.values[frame][static_cast<size_t>(value.id)];
  };
  MemoryPlan wrong = plan;
  offset(wrong, 0, y) = offset(wrong, 1, x);
  EXPECT_THAT(testing::MemoryReplay(programs, wrong).run(list),
              Contains(HasSubstr("meets a message")))
      << "what is received";
  wrong = plan;
  offset(wrong, 1, y) = offset(wrong, 0, y);
  EXPECT_THAT(testing::MemoryReplay(programs, wrong).run(list),
              Contains(HasSubstr("meets a message")))
      << "what is sent";
}

TEST(MemoryReplay, StagesLoseNothingWhileLanesAndMessagesAreAtWork) {
  const std::vector<std::vector<std::string>> layouts{
      {},
      {"parallel.tensor=2", "shard.optimizer=\"all\""},
      {"parallel.virtual_stages=2", "parallel.schedule=\"zb-v\""},
      {"parallel.virtual_stages=2", "parallel.schedule=\"interleaved\"", "shard.optimizer=\"all\"",
       "shard.gradients=\"all\"", "shard.weights=\"all\""}};
  for (const auto& layout : layouts) {
    std::vector<std::string> overrides{"model.layers=4", "parallel.pipeline=2",
                                       "train.global_batch=16", "model.tied_head=true"};
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const RunConfig config = small_run(overrides);
    const Mesh mesh = mesh_of(config, 4);
    for (int rank = 0; rank < 4; ++rank) {
      const StepPlan plan = plan_step(config, replay_target(), {mesh, rank});
      EXPECT_THAT(
          testing::MemoryReplay(plan.programs.list(), plan.memory).run(two_steps(plan.programs)),
          IsEmpty())
          << fmt::format("{}, rank {}", fmt::join(layout, " "), rank);
    }
  }
}

/// Two chunks, the first with several micro-batches in flight, and split backward passes.
TEST(MemoryReplay, ChunksWithSeveralMicroBatchesInFlightLoseNothing) {
  constexpr int kMicroBatches = 4;
  std::vector<Action> in_flight, split;
  for (int m = 0; m < kMicroBatches + 2; ++m) {
    if (m < kMicroBatches) in_flight.push_back({Segment::forward, 0, m});
    if (m < 2) continue;
    in_flight.push_back({Segment::forward, 1, m - 2});
    in_flight.push_back({Segment::backward, 1, m - 2});
    in_flight.push_back({Segment::backward, 0, m - 2});
  }
  for (int m = 0; m <= kMicroBatches; ++m) {
    if (m < kMicroBatches) {
      split.push_back({Segment::forward, 0, m});
      split.push_back({Segment::forward, 1, m});
      split.push_back({Segment::input_gradients, 1, m});
      split.push_back({Segment::input_gradients, 0, m});
    }
    if (m == 0) continue;
    split.push_back({Segment::weight_gradients, 1, m - 1});
    split.push_back({Segment::weight_gradients, 0, m - 1});
  }
  for (const Recompute& recompute : {Recompute{}, Recompute{.norm = true}, Recompute{.layer = true},
                                     Recompute{.attention = true, .experts = true}}) {
    const ModelConfig model = small_run({"model.layers=4"}).model;
    const ProgramSize size{.sequences = 2, .context = 64, .document_mask = true};
    const Chunk first = write_chunk(model, DType::bf16, size, recompute,
                                    {.layers = {0, 2}, .embedding = true, .head = false});
    const Chunk second = write_chunk(model, DType::bf16, size, recompute,
                                     {.layers = {2, 4}, .embedding = false, .head = true});
    const Program* const programs[] = {&first.program, &second.program};
    for (const auto& actions : {in_flight, split}) {
      const MemoryPlan plan = plan_memory(programs, actions, replay_target());
      EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions), IsEmpty());
      EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.01 * static_cast<double>(plan.live_bytes));
    }
  }
}

TEST(MemoryReplay, DecodingLosesNothing) {
  const ModelConfig model = small_run({}).model;
  for (const int64_t tokens : {1, 7}) {
    const DecodingProgram decoding = write_decoding(model, DType::bf16, tokens, 64);
    const Program* const programs[] = {&decoding.program};
    const Action actions[] = {{}, {}, {}};
    const MemoryPlan plan = plan_memory(programs, std::span(actions, 1), replay_target());
    EXPECT_THAT(testing::MemoryReplay(programs, plan).run(actions), IsEmpty());
  }
}

/// Values whose memory the next operation would like to take over, with views that outlive them.
TEST(MemoryReplay, MemoryThatAViewHasIsNotTakenOver) {
  const Spec spec{{64}, DType::f32, {}};
  const auto lost = [](const Program& program) {
    const Program* const programs[] = {&program};
    const Action actions[] = {{}};
    const MemoryPlan plan = plan_memory(programs, actions, replay_target());
    return testing::MemoryReplay(programs, plan).run(actions);
  };
  {
    Program program;
    Builder builder(program);
    const Value y = scale(builder, builder.input("x", spec), 2);
    builder.output(view(builder, y, 16, {16}));
    builder.output(scale(builder, y, 3));
    EXPECT_THAT(lost(program), IsEmpty()) << "an output that is a view";
  }
  {
    Program program;
    Builder builder(program);
    const Value y = scale(builder, builder.input("x", spec), 2);
    const Value part = view(builder, y, 0, {64});
    const Value both[] = {y, part};
    builder.output(add(builder, both, DType::f32));
    EXPECT_THAT(lost(program), IsEmpty()) << "an operation that reads it twice";
  }
}

/// Shapes that nobody chose: the arena stays near what is in use at once, and nothing is lost.
RC_GTEST_PROP(MemoryReplay, AnyStepIsTightAndLosesNothing, ()) {
  const auto one_of = [](std::vector<std::string> values) {
    return *rc::gen::elementOf(std::move(values));
  };
  const std::string hidden = one_of({"64", "128", "256"});
  std::vector<std::string> overrides{
      "model.layers=" + one_of({"1", "2", "3"}),
      "model.hidden_size=" + hidden,
      "model.vocabulary_size=" + one_of({"257", "1000", "5000"}),
      "data.context=" + one_of({"2", "64", "256"}),
      "train.micro_batch=" + one_of({"1", "3"}),
      "train.global_batch=3",
      "train.evaluate_every=" + one_of({"0", "1"}),
      "train.recompute=" + one_of({"[]", "[\"norm\"]", "[\"attention\"]", "[\"experts\"]",
                                   "[\"layer\"]", "[\"norm\",\"experts\"]"}),
      "train.precision=" + one_of({"\"bf16\"", "\"fp32\""}),
      "model.heads=4",
      "model.kv_heads=" + one_of({"1", "4"})};
  if (*rc::gen::arbitrary<bool>()) {
    overrides.insert(overrides.end(), {"model.experts=" + one_of({"4", "16"}),
                                       "model.experts_per_token=" + one_of({"1", "2"}),
                                       "model.expert_size=" + hidden});
  } else {
    overrides.insert(overrides.end(), {"model.family=\"llama\"", "model.experts=0",
                                       "model.feed_forward_size=" + hidden});
  }
  const RunConfig config = small_run(overrides);
  Target target = replay_target();
  target.threads = *rc::gen::element(1, 2, 16);
  const StepPlan plan = plan_step(config, target);
  const std::vector<const Program*> programs = plan.programs.list();
  RC_ASSERT(testing::MemoryReplay(programs, plan.memory).run(two_steps(plan.programs)).empty());
  // The search for offsets stops at holes of a fiftieth, and may end with more.
  RC_ASSERT(static_cast<double>(plan.memory.arena_bytes) <=
            1.1 * static_cast<double>(plan.memory.live_bytes));
}

}  // namespace
}  // namespace tessera
