#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "state/parameter_store.h"
#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "verify/layout_run.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace tessera {
namespace {
thread_local int64_t allocations = 0;  // of this thread
}  // namespace
}  // namespace tessera

// The program's own, which count. The others of the standard library call these.
void* operator new(size_t size) {
  ++tessera::allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

/// What nodes of the network's lane take from the heap.
struct Taken {
  int64_t nodes = 0;
  int64_t allocations = 0;
  std::string_view first;  ///< the operation that took some first
};

/// Runs three optimizer steps on every rank, and counts in the last one.
Taken taken_in_third_step(const LayoutTrial& trial) {
  const auto steps = testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 2, 3);
  World world(trial.mesh.ranks());
  std::vector<Taken> by_rank(static_cast<size_t>(trial.mesh.ranks()));
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    const StepPrograms programs = layout_programs(trial, groups.rank());
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Executor executor(programs.list(), programs.actions(), runtime);
    ParameterStore store = store_of(programs, executor);
    TrainingStep step(programs, executor, store);
    store.initialize(trial.seed, 1);
    Taken& taken = by_rank[static_cast<size_t>(groups.rank())];
    int64_t before = -1;  // allocations before the node; -1 if others than nodes made some
    for (int number = 1; number <= 3; ++number) {
      if (number == 3) {
        executor.set_observer([&](const Program&, const Node& node, std::span<const Tensor>) {
          const int64_t own = before < 0 ? 0 : allocations - before;
          if (node.operation->lane() != Lane::compute && before >= 0) {
            ++taken.nodes;
            taken.allocations += own;
            if (own > 0 && taken.first.empty()) taken.first = node.operation->name();
          }
          before = allocations;
        });
      }
      step.on_inputs([&](const TrainingStep::BegunRun&) { before = -1; });
      step.forward_backward(steps[0]);
      step.on_inputs({});
      before = -1;
      step.update(trial.optimizer, {.step = number, .steps = 3});
      EXPECT_TRUE(step.results().wait().updated);
    }
  });
  Taken all;
  for (const Taken& own : by_rank) {
    all.nodes += own.nodes;
    all.allocations += own.allocations;
    if (all.first.empty()) all.first = own.first;
  }
  return all;
}

TEST(SteadyRanks, TakeNoMemoryToMeet) {
  for (const ExpertExchange exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
    ModelConfig model = testing::tiny_mixture(2);
    model.balance_coefficient = 0.02;
    const LayoutTrial trial{.model = model,
                            .size = {.sequences = 4, .context = 8},
                            .compute = DType::bf16,
                            .mesh = Mesh({.tensor = 2, .data = {2}, .expert = 2}),
                            .experts = {.exchange = exchange}};
    const Taken taken = taken_in_third_step(trial);
    EXPECT_GT(taken.nodes, 100) << word(exchange);
    EXPECT_EQ(taken.allocations, 0) << word(exchange) << ": " << taken.first;
  }
}

/// Two nodes, whose gradients travel in bf16.
TEST(SteadyRanks, TakeNoMemoryToSumByNode) {
  const LayoutTrial trial{.model = testing::tiny_mixture(2),
                          .size = {.sequences = 4, .context = 8},
                          .compute = DType::bf16,
                          .mesh = Mesh({.tensor = 2, .data = {2, 2}, .expert = 2}),
                          .shard = {.unit_options = {.gradients_wire = {WireFormat::bf16}}}};
  const Taken taken = taken_in_third_step(trial);
  EXPECT_GT(taken.nodes, 100);
  EXPECT_EQ(taken.allocations, 0) << taken.first;
}

}  // namespace
}  // namespace tessera

#endif
