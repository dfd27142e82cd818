#include <algorithm>
#include <cstdio>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/random.h"
#include "base/words.h"
#include "comm/in_process/run_mesh.h"
#include "config/mesh_of.h"
#include "inference/evaluate.h"
#include "ops/host_target.h"
#include "pipeline/generate.h"
#include "plan/step_plan.h"
#include "support/prepared_data.h"
#include "support/rank_plans.h"
#include "support/scattered_schedule.h"
#include "tensor/alignment.h"
#include "train/training_step.h"

namespace tessera {
namespace {

/// Pages of the least size, however the system is set up: an arena asks for large ones, which are
/// given whole where a byte of them is touched.
class SmallPages {
 public:
  SmallPages() { EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); }
  ~SmallPages() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;
};

/// What the system has given memory to in a range of addresses that begins at a page, in bytes of
/// whole pages. Addresses that are not reserved count as untouched.
struct Touched {
  int64_t bytes = 0;
  int64_t end = 0;  ///< of the last page, from the beginning of the range
};

Touched touched(const std::byte* begin, int64_t bytes) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<uint64_t> entries(static_cast<size_t>(bytes / page));
  std::FILE* file = std::fopen("/proc/self/pagemap", "rb");
  EXPECT_NE(file, nullptr);
  if (file == nullptr) return {};
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin)) / page;
  EXPECT_EQ(std::fseek(file, first * static_cast<long>(sizeof(uint64_t)), SEEK_SET), 0);
  EXPECT_EQ(std::fread(entries.data(), sizeof(uint64_t), entries.size(), file), entries.size());
  std::fclose(file);
  Touched result;
  for (size_t i = 0; i < entries.size(); ++i) {
    constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;  // bits 63 and 62
    if ((entries[i] & kPresentOrSwapped) == 0) continue;
    result.bytes += page;
    result.end = static_cast<int64_t>(i + 1) * page;
  }
  return result;
}

/// A micro-batch of random tokens.
Batch random_batch(const RunConfig& config) {
  Batch batch{.rows = config.train.micro_batch, .context = config.data.context};
  const CounterRandom random(3, "tokens");
  for (int64_t i = 0; i < batch.rows * batch.context; ++i) {
    const uint64_t bits = random.bits(static_cast<uint64_t>(i));
    batch.tokens.push_back(
        static_cast<int32_t>(bits % static_cast<uint64_t>(config.model.vocabulary_size)));
  }
  complete_batch(batch, -1);  // no token ends a document
  return batch;
}

/// A small mixture whose activations show beside its weights.
RunConfig config_with(const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"model.vocabulary_size=3000", "model.hidden_size=128",
                                     "model.expert_size=96",       "data.context=256",
                                     "train.micro_batch=4",        "train.global_batch=8"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return resolve(parse_config(testing::small_config("/nowhere"), "test", overrides));
}

/// Runs a step and an evaluation by a plan, and compares it with what the system counts, which
/// knows nothing of the plan's account: the pages of the arena that have memory then. Beside the
/// rest of the last page, untouched is only scratch memory that a product did not use: up to 1.1 %
/// here, and with AVX-512, where it is a limit for all shapes of products, no more than a
/// workspace.
void expect_arena_touched(const RunConfig& config, const StepPlan& plan, Runtime& runtime) {
  const int64_t arena_bytes = plan.memory.arena_bytes;
  Executor executor(plan.programs.list(), plan.memory, runtime);
  const std::byte* const begin = executor.arena().at(0, {1}, DType::u8).raw();
  const ParameterStore store = store_of(plan.programs, executor);
  TrainingStep step(plan.programs, executor, store);
  store.initialize(config.train.seed, runtime.threads());
  const std::vector<Batch> batches(static_cast<size_t>(plan.micro_batches), random_batch(config));
  step.forward_backward(batches);
  step.update(config.optimizer, {.step = 1, .steps = 2});
  if (const auto& evaluation = plan.programs.sets[0].evaluation) {
    Evaluator evaluator(*evaluation, plan.programs.evaluation_number(), executor);
    EXPECT_GT(evaluator.batch_loss(batches[0]), 0);
  }

  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const Touched found = touched(begin, round_up(arena_bytes, kHugePage));
  int64_t slack = arena_bytes / 50;
  ASSERT_GT(slack, 16 * page) << "too small to show";
  EXPECT_LT(found.end, arena_bytes + page) << "memory beyond the arena";
  if (runtime.target().instructions >= MatrixInstructions::avx512) {
    slack += std::ranges::max(plan.memory.programs.front().workspace_bytes);
  }
  EXPECT_GT(found.bytes, arena_bytes - slack);
}

class TouchedMemoryTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(TouchedMemoryTest, OfAStepIsTheArena) {
  const SmallPages small;
  const RunConfig config = config_with(GetParam());
  const StepPlan plan = plan_step_that_fits(config);
  EXPECT_LE(static_cast<double>(plan.memory.arena_bytes),
            1.01 * static_cast<double>(plan.memory.live_bytes));
  Runtime runtime(host_target(static_cast<int>(config.run.threads)));
  expect_arena_touched(config, plan, runtime);
}

INSTANTIATE_TEST_SUITE_P(
    Steps, TouchedMemoryTest,
    ::testing::Values(std::vector<std::string>{},
                      std::vector<std::string>{"train.precision=\"fp32\""},
                      std::vector<std::string>{"train.recompute=[\"norm\"]"},
                      std::vector<std::string>{"train.recompute=[\"attention\"]"},
                      std::vector<std::string>{"train.recompute=[\"experts\"]"},
                      std::vector<std::string>{"train.recompute=[\"layer\"]"},
                      std::vector<std::string>{"model.family=\"llama\"", "model.experts=0",
                                               "model.experts_per_token=0", "model.expert_size=0",
                                               "model.feed_forward_size=300"},
                      std::vector<std::string>{
                          "train.recompute=[\"norm\",\"attention\",\"experts\"]"},
                      std::vector<std::string>{"train.evaluate_every=1"},
                      std::vector<std::string>{"run.threads=1", "model.layers=4"}));

/// Compares the arenas of three stages that follow a schedule, each with what it touched.
void expect_arenas_of_stages(std::vector<std::string> keys) {
  const SmallPages small;
  keys.insert(keys.end(), {"parallel.pipeline=3", "model.layers=6", "model.balance_form=\"layer\"",
                           "train.evaluate_every=1", "run.hardware=\"\""});
  const RunConfig config = config_with(keys);
  const Mesh mesh = mesh_of(config, 3);
  const std::vector<StepPlan> plans = plans_of_ranks(config, mesh);
  World world(mesh.ranks());
  run_mesh(world, mesh, [&](RankGroups& groups) {
    SCOPED_TRACE(fmt::format("stage {}", groups.rank()));
    Runtime runtime(run_target(config, nullptr, mesh.ranks()));
    runtime.join(groups);
    expect_arena_touched(config, plans[static_cast<size_t>(groups.rank())], runtime);
  });
}

/// The stages of a pipeline hold other chunks, other numbers of frames, and boundaries on one side
/// or on both.
class TouchedMemoryOfStages : public ::testing::TestWithParam<std::string> {};

TEST_P(TouchedMemoryOfStages, IsTheArenaOfEachWithTheSchedule) {
  const auto kind = from_word<ScheduleKind>(GetParam());
  std::vector<std::string> keys{"parallel.schedule=\"" + GetParam() + "\"",
                                "train.global_batch=24"};
  if (kind == ScheduleKind::interleaved || kind == ScheduleKind::flexible) {
    keys.emplace_back("parallel.virtual_stages=2");
  }
  if (kind == ScheduleKind::flexible) keys.emplace_back("parallel.consecutive_micro_batches=4");
  expect_arenas_of_stages(keys);
}

INSTANTIATE_TEST_SUITE_P(Schedules, TouchedMemoryOfStages,
                         ::testing::ValuesIn(words_of<ScheduleKind>()), [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

/// Chunks are on ranks in any order, and only some backward passes are in halves.
TEST(TouchedMemoryOfScatteredStages, IsTheArenaOfEach) {
  const TemporaryFolder folder;
  const std::string path = testing::write_scattered_schedule(folder.path(), {1, 2, 0},
                                                             "I*.0 I*.1 W*.0 W*.1 B*.2 I*.3 W*.3");
  expect_arenas_of_stages({"parallel.schedule=\"" + path + "\"", "train.global_batch=16"});
}

}  // namespace
}  // namespace tessera
